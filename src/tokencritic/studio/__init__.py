"""The studio: a page in the browser, and the same functions over HTTP. Needs the extra `studio`.

`service.py` and the modules that it imports do not depend on the page. `server.py` connects the service and the page.
"""
