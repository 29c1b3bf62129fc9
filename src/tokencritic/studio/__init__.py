"""The studio: a page in the browser, and the same functions over HTTP.

`service.py` and what it uses know nothing of the page; `server.py` puts the two together. Needs the extra `studio`.
"""
