"""The same functions over HTTP: JSON in, JSON out, images as base64 of PNG files. And the addresses of pictures."""

import asyncio
import base64
import binascii
import dataclasses
import json
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tokencritic import __version__
from tokencritic.errors import InputError
from tokencritic.studio import views
from tokencritic.studio.commands import refine_command, sample_command
from tokencritic.studio.runs import Run
from tokencritic.studio.service import Busy, Service
from tokencritic.studio.work import Generate, Part, Refine, Work

_SECONDS = 0.05
_STATUS = {"failed": 400, "late": 504, "cancelled": 409}
_FOR_EVER = {"cache-control": "private, max-age=3600, immutable"}


class Api:
    """Routes on a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._drawing = threading.Lock()  # one picture is drawn at a time, so that many who ask do not fill the memory

    def routes(self) -> list[Route]:
        return [
            Route("/api/model", self.model),
            Route("/api/generate", self.generate, methods=["POST"]),
            Route("/api/refine", self.refine, methods=["POST"]),
            Route("/api/edit", self.edit, methods=["POST"]),
            Route("/studio/pictures", self.upload, methods=["POST"]),
            Route("/studio/runs/{run}/{part:int}/{name}", self.picture),
        ]

    def model(self, _: Request) -> Response:
        """What the model is, and what may be asked of it."""
        pipe, service = self.service.pipe, self.service
        return JSONResponse(
            {
                "version": __version__,
                "model": service.model,
                "parts": sorted(pipe.parts),
                "classes": views.names_of(pipe, range(pipe.generator.num_classes)),
                "image_size": pipe.tokenizer.image_size,
                "channels": pipe.tokenizer.channels,
                "grid": list(pipe.tokenizer.grid),
                "defaults": dataclasses.asdict(pipe.defaults),
                "limits": dataclasses.asdict(service.limits),
            }
        )

    async def generate(self, request: Request) -> Response:
        def told(run: Run) -> dict[str, Any]:
            assert run.result is not None
            assert isinstance(run.work, Generate)
            part = run.result.parts[0]
            command = sample_command(self.service.model, run.work, part.settings, self.service.pipe.class_names)
            seeds = [run.work.seed + index for index in range(len(part.labels))]
            return self._told(part) | {"seeds": seeds, "command": command}

        return await self._run(request, self.service.requests.generate, told)

    async def refine(self, request: Request) -> Response:
        def told(run: Run) -> dict[str, Any]:
            assert run.result is not None
            assert isinstance(run.work, Refine)
            part, names = run.result.parts[0], self.service.pipe.class_names
            command = refine_command(self.service.model, run.work, part.labels[0], "picture.png", names)
            return self._told(part) | self._told_before(run) | {"seeds": [run.work.seed], "command": command}

        return await self._run(request, self._with_image(self.service.requests.refine), told)

    async def edit(self, request: Request) -> Response:
        def told(run: Run) -> dict[str, Any]:
            assert run.result is not None
            assert run.result.region is not None
            drawn = run.result.region.nonzero().flatten().tolist()
            return self._told(run.result.parts[0]) | self._told_before(run) | {"region": drawn}

        return await self._run(request, self._with_image(self.service.requests.edit), told)

    async def upload(self, request: Request) -> Response:
        """A picture for the page, as the bytes of its file; it is kept for the client that sent it."""
        data, name = await request.body(), request.query_params.get("name", "")
        try:
            picture = await asyncio.to_thread(self.service.keep_upload, request.state.client, data, name)
        except InputError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({"id": picture.id, "name": picture.name})

    def picture(self, request: Request) -> Response:
        """`images.png`, `image_I.png`, `steps_I.png`, `steps.gif`, `given.png` of one of the client's own runs."""
        number, name = request.path_params["part"], request.path_params["name"]
        try:
            run = self.service.find(request.state.client, request.path_params["run"])
            if run.result is None or number >= len(run.result.parts):
                raise InputError("there is no such picture")
            with self._drawing:
                content = self._draw(run, run.result.parts[number], name)
        except InputError as error:
            return JSONResponse({"error": str(error)}, 404)
        return Response(content, media_type="image/gif" if name.endswith(".gif") else "image/png", headers=_FOR_EVER)

    def _draw(self, run: Run, part: Part, name: str) -> bytes:
        pipe = self.service.pipe
        if name == "images.png":
            return views.png(views.sheet(pipe, part))
        if name == "steps.gif":
            return views.animation(pipe, part)
        if name == "given.png" and (given := getattr(run.work, "picture", None)) is not None:
            return views.png(given)
        found = re.fullmatch(r"(image|steps)_(\d{1,6})\.png", name)
        if found is None or int(found[2]) >= len(part.images):
            raise InputError("there is no such picture")
        index = int(found[2])
        return views.png(part.images[index] if found[1] == "image" else views.step_panels(pipe, part, index))

    async def _run(
        self,
        request: Request,
        make: Callable[[Mapping[str, Any]], Work],
        told: Callable[[Run], dict[str, Any]],
    ) -> Response:
        """Hand in what the body asks for, wait for it, and tell of it. A client that goes away takes its run along."""
        client = "api " + secrets.token_urlsafe(16)
        try:
            values = _json(await request.body())
            run = self.service.submit(client, await asyncio.to_thread(make, values))
        except InputError as error:
            return JSONResponse({"error": str(error)}, 400)
        except Busy as error:
            return JSONResponse({"error": str(error)}, 503, headers={"retry-after": "5"})
        while not run.finished.is_set():
            await asyncio.sleep(_SECONDS)
            self.service.ahead(run)
            if await request.is_disconnected():
                self.service.cancel(client, run.kind)
        if run.state != "done":
            return JSONResponse({"error": run.message}, _STATUS[run.state])
        return JSONResponse(await asyncio.to_thread(told, run))

    def _with_image(self, make: Callable[[Any, Mapping[str, Any]], Work]) -> Callable[[Mapping[str, Any]], Work]:
        def making(values: Mapping[str, Any]) -> Work:
            others = {name: value for name, value in values.items() if name != "image"}
            return make(self.service.read_upload(_decode_base64(values.get("image"))), others)

        return making

    def _told(self, part: Part) -> dict[str, Any]:
        return {
            "images": [views.as_base64(image) for image in part.images],
            "labels": list(part.labels),
            "classes": views.names_of(self.service.pipe, part.labels),
            "settings": dataclasses.asdict(part.settings),
            "passes": part.passes,
            "seconds": part.seconds,
            "scores": None if part.scores is None else part.scores.tolist(),
            "mean_score": part.mean_score,
        }

    def _told_before(self, run: Run) -> dict[str, Any]:
        assert run.result is not None
        assert run.result.before is not None
        before = run.result.before
        scores = None if before.scores is None else before.scores[0].tolist()
        return {
            "before": views.as_base64(before.images[0]),
            "before_scores": scores,
            "before_mean_score": before.mean_score,
        }


def _json(body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError("the body is not JSON; expected an object") from error
    if not isinstance(values, dict):
        raise InputError(f"the body is a {type(values).__name__}; expected an object")
    return values


def _decode_base64(text: Any) -> bytes:
    if not isinstance(text, str):
        raise InputError("image is missing; expected the base64 of a picture's file")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError("image is not base64; expected that of a picture's file") from error
