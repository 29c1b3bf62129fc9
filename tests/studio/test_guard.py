"""Who is let in, how much strangers may send, and where they may go."""

import contextlib
import http.client
import json
import socket
from urllib.parse import urlsplit

import pytest
from studio.live import api, call, running
from studio.toy import noise_picture, png_bytes

from tokencritic.errors import InputError
from tokencritic.studio.server import check_binding, is_loopback

TOKEN = "a-long-enough-token"


def raw(address, *parts):
    """Send bytes as they are; (status, body) of the answer, as soon as it is there."""
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port), timeout=120) as connection:
        for part in parts:
            connection.sendall(part)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.read()


def test_a_body_of_a_gigabyte_is_refused_before_it_is_read(studio):
    for path in ("/api/generate", "/studio/pictures", "/studio/runs", "/nowhere"):
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n".encode()
        status, said = raw(studio, head, b"x" * 2**20)
        assert status == 413, path
        assert "the most that is taken here" in json.loads(said)["error"]
    endless = b"POST /studio/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    status, said = raw(studio, endless, *[chunk] * 8)
    assert (status, json.loads(said)) == (411, {"error": "a request must say its Content-Length"})


def test_who_sends_slowly_keeps_nobody_from_uploading(studio):
    place = urlsplit(studio)
    head = b"POST /studio/pictures HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\nabc"
    with contextlib.ExitStack() as open_ones:
        slow = [open_ones.enter_context(socket.create_connection(place[1].split(":"), timeout=60)) for _ in range(12)]
        for connection in slow:
            connection.sendall(head)
        large = png_bytes(noise_picture(500, 500, 3))
        assert len(large) > 300000
        assert len(api(studio, "/studio/pictures", large)[1]["id"]) == 22
        answer = http.client.HTTPResponse(slow[0])
        answer.begin()
        assert answer.status == 408
        assert b"3 of 300000 bytes arrived in time" in answer.read()


def test_no_way_leads_to_files_or_to_other_hosts(studio):
    paths = [
        "/file=/etc/passwd",
        "/gradio_api/queue/join",
        "/page/../guard.py",
        "/page/guard.py",
        "/page/login.html/../../guard.py",
        "/page/%2e%2e/guard.py",
        "/studio/runs/x/0/../../../../etc/passwd",
        "/studio/samples/9.png",
        "/studio/nothing",
        "/docs",
        "/openapi.json",
    ]
    for path in paths:
        assert call(studio, path)[0] == 404, path
    assert call(studio, "/gradio_api/queue/join", {"fn_index": 9999})[0] == 404
    assert call(studio, "/", method="DELETE")[0] == 405
    assert call(studio, "/studio/runs/x/stop")[0] == 405


def test_pages_of_other_sites_are_kept_out(studio):
    place = urlsplit(studio)
    assert api(studio, "/api/model", Host="evil.example")[0] == 403
    assert api(studio, "/api/model", Host="localhost:1234")[0] == 200  # a tunnel
    assert api(studio, "/api/generate", {"num": 1}, Origin="http://evil.example")[0] == 403
    assert api(studio, "/api/generate", {"num": 1}, Origin="null")[0] == 403
    own = f"http://{place.netloc}"
    assert api(studio, "/api/generate", {"num": 1}, Origin=own, Host=place.netloc)[0] == 200
    status, headers, _ = call(studio, "/")
    assert status == 200
    assert "default-src 'none'; script-src 'self'; style-src 'self';" in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert "HttpOnly" in headers["set-cookie"]


def test_a_token_is_asked_for_and_enough(model):
    with running(model, "--token", TOKEN) as address:
        assert api(address, "/api/model") == (401, {"error": "bring the token as `Authorization: Bearer TOKEN`"})
        assert api(address, "/api/model", Authorization="Bearer wrong")[0] == 401
        assert api(address, "/api/model", Authorization=f"Bearer {TOKEN}")[0] == 200
        status, _, page = call(address, "/")
        assert status == 401
        assert b'type="password"' in page
        assert b"main.js" not in page
        assert call(address, "/page/style.css")[0] == 200  # of the form
        assert call(address, "/page/main.js")[0] == 401
        large = b"x" * 2**19
        assert call(address, "/studio/pictures", large)[0] == 413  # without the token nobody sends much
        assert call(address, "/studio/login", b"token=wrong")[0] == 401
        status, headers, _ = call(address, "/studio/login", f"token={TOKEN}".encode())
        assert (status, headers["location"]) == (303, "/")
        given = next(text for text in headers.get_all("set-cookie") if "pass" in text)
        assert TOKEN not in given
        assert call(address, "/", Cookie=given.split(";")[0])[0] == 200
        assert call(address, f"/?token={TOKEN}")[0] == 303
        assert call(address, "/studio/about")[0] == 401
        for _ in range(8):  # the ninth and tenth wrong one are above
            assert call(address, "/studio/login", b"token=wrong")[0] == 401
        status, _, page = call(address, "/studio/login", f"token={TOKEN}".encode())
        assert (status, b"Too many wrong tokens" in page) == (429, True)
        assert api(address, "/api/model", Authorization=f"Bearer {TOKEN}")[0] == 429
        assert call(address, "/", Cookie=given.split(";")[0])[0] == 200  # who was let in stays in


def test_addresses_that_others_can_reach_need_a_token():
    for host in ("127.0.0.1", "localhost", "::1", "127.3.2.1"):
        assert is_loopback(host)
        check_binding(host, 0, None)
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(InputError, match="which others can reach; give a --token"):
            check_binding(host, 7860, None)
        check_binding(host, 7860, TOKEN)
    for token in ("", "short", "eight\nor more", "acht Zeichen ü"):
        with pytest.raises(InputError, match="--token is too short or odd"):
            check_binding("127.0.0.1", 7860, token)
    with pytest.raises(InputError, match="--port is 70000"):
        check_binding("127.0.0.1", 70000, None)
