"""The requests of the page: the model, runs and their progress, and pictures. Errors are returned as `{"error": ...}`.

Every response except a picture has status 200. Otherwise the browser's console would report a user's mistake as an
error of the page.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from PIL import Image, ImageOps
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tokencritic.data.npz import arrays_of
from tokencritic.data.source import check_arrays
from tokencritic.errors import InputError
from tokencritic.image_forms import to_images, to_pil
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.studio import controls, views
from tokencritic.studio.api import read_object
from tokencritic.studio.service import EVERYONE, Busy, Expired, Job, Service
from tokencritic.studio.work import Work, png

_TICK, _LONGEST = 0.05, 20.0  # seconds between two checks of a run, and of one `follow`
_FOR_EVER = {"cache-control": "private, max-age=3600, immutable"}
_MOST_SAMPLES, _MOST_REFERENCE_BYTES = 10, 2**24


class Visits:
    """The routes of the page on a service. A new instance submits a run whose images all visitors see."""

    def __init__(self, service: Service) -> None:
        self.service, self.samples = service, sample_pictures(service.pipe)
        self.about = controls.about(service) | {"samples": len(self.samples)}
        self._artist = ThreadPoolExecutor(1, "artist")  # one thread limits the memory of many requests
        asked = controls.first_values(service)
        with suppress(InputError):  # the model's own settings may exceed the limits
            service.submit(EVERYONE, service.requests.generate(asked), asked)

    def routes(self) -> list[Route]:
        runs, post = "/studio/runs", ["POST"]
        return [
            Route("/studio/about", _answer(self.tell_about)),
            Route(runs, _answer(self.list_runs)),
            Route(runs, _answer(self.start), methods=post),
            Route(f"{runs}/{{job}}", _answer(self.follow)),
            Route(f"{runs}/{{job}}/stop", _answer(self.stop), methods=post),
            Route(f"{runs}/{{job}}/{{number:int}}/{{name}}_{{index:int}}.png", self.picture_of_run),
            Route(f"{runs}/{{job}}/{{number:int}}/{{name}}.png", self.picture_of_run),
            Route(f"{runs}/{{job}}/{{number:int}}/{{name}}.gif", self.picture_of_run),
            Route(f"{runs}/{{job}}/{{name}}.png", self.picture_of_change),
            Route("/studio/pictures", _answer(self.upload), methods=post),
            Route("/studio/pictures/{picture}/invert", _answer(self.invert), methods=post),
            Route("/studio/pictures/{picture}.png", self.picture),
            Route("/studio/pictures/{picture}", _answer(self.find_picture)),
            Route("/studio/samples/{index:int}.png", self.sample),
        ]

    async def tell_about(self, _: Request) -> dict[str, Any]:
        return self.about

    async def list_runs(self, request: Request) -> dict[str, Any]:
        """Return the kept runs that the visitor may see, oldest first."""
        return {"runs": [views.summary(job) for job in self.service.jobs(request.state.client)]}

    async def start(self, request: Request) -> dict[str, Any]:
        """Submit a run and return its id. Body: `kind`, the tab, and `values`, the values of its controls."""
        body = read_object(await request.body())
        kind, values = body.get("kind"), body.get("values")
        if not isinstance(values, dict):
            raise InputError("values is missing; expected what the controls hold")
        make = partial(self._make, request.state.client, kind, values)
        work = await asyncio.get_running_loop().run_in_executor(self._artist, make)
        return {"id": self.service.submit(request.state.client, work, values).id}

    def _make(self, client: str, kind: Any, values: dict[str, Any]) -> Work:
        requests = self.service.requests
        if kind == "generate":
            return requests.generate(values)
        if kind == "compare":
            return requests.compare(values)
        if kind not in ("look", "refine", "edit"):
            raise InputError(f"kind is {str(kind)[:60]!r}; expected generate, compare, look, refine or edit")
        make = {"look": requests.look, "refine": requests.refine, "edit": requests.edit}[kind]
        others = {name: value for name, value in values.items() if name != "picture"}
        return make(self.service.picture(client, values.get("picture")), others)

    async def follow(self, request: Request) -> dict[str, Any]:
        """Return the progress of a run as soon as its `version` differs from `seen`, or after `_LONGEST` seconds.

        A finished run is returned with its results.
        """
        job, end = self._find(request), time.monotonic() + _LONGEST
        while not job.finished.is_set():
            ahead = self.service.ahead(job)
            if views.version(job, ahead) != request.query_params.get("seen") or time.monotonic() > end:
                return views.progress(job, ahead)
            await asyncio.sleep(_TICK)
        return await asyncio.get_running_loop().run_in_executor(self._artist, views.finished, self.service, job)

    async def stop(self, request: Request) -> dict[str, Any]:
        self.service.cancel(request.state.client, request.path_params["job"])
        return {}

    async def upload(self, request: Request) -> dict[str, Any]:
        """Keep a picture for the visitor who sends it, and return its id. The body is the file of the picture."""
        read = partial(self.service.read_upload, await request.body())
        image = await asyncio.get_running_loop().run_in_executor(self._artist, read)
        return {"id": self.service.keep_picture(request.state.client, image)}

    async def find_picture(self, request: Request) -> dict[str, Any]:
        """Return the id of a picture that is kept. Raises Expired for any other."""
        self.service.picture(request.state.client, picture_id := request.path_params["picture"])
        return {"id": picture_id}

    async def invert(self, request: Request) -> dict[str, Any]:
        """Keep an inverted copy of a picture, where light is dark, and return its id."""
        client = request.state.client
        image = self.service.picture(client, request.path_params["picture"])
        return {"id": self.service.keep_picture(client, ImageOps.invert(image))}

    async def picture(self, request: Request) -> Response:
        found = partial(self.service.picture, request.state.client, request.path_params["picture"])
        return await self._drawn(lambda: png(found()))

    async def sample(self, request: Request) -> Response:
        return await self._drawn(lambda: png(self.samples[request.path_params["index"]]))

    async def picture_of_run(self, request: Request) -> Response:
        """Return `image_N.png`, `steps_N.png`, `images.png` or `gif.gif` of a run."""
        asked = request.path_params
        which = asked["number"], asked["name"], asked.get("index", 0)
        return await self._drawn(lambda: views.draw(self.service, self._find(request), *which))

    async def picture_of_change(self, request: Request) -> Response:
        name = request.path_params["name"]
        return await self._drawn(lambda: views.draw_change(self.service, self._find(request), name))

    def _find(self, request: Request) -> Job:
        return self.service.find(request.state.client, request.path_params["job"])

    async def _drawn(self, draw: Callable[[], bytes]) -> Response:
        try:
            content = await asyncio.get_running_loop().run_in_executor(self._artist, draw)
        except Expired as error:
            return JSONResponse({"error": str(error)}, 410)
        except (InputError, LookupError):
            return JSONResponse({"error": "there is no such picture"}, 404)
        kind = "image/gif" if content.startswith(b"GIF") else "image/png"
        return Response(content, media_type=kind, headers=_FOR_EVER)


def _answer(
    make: Callable[[Request], Awaitable[dict[str, Any]]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that answers with JSON. It reports InputError and Busy as `error`."""

    async def answering(request: Request) -> Response:
        try:
            return JSONResponse(await make(request))
        except (InputError, Busy) as error:
            return JSONResponse({"error": str(error), "expired": isinstance(error, Expired)})

    return answering


def sample_pictures(pipe: TokenCriticPipeline) -> list[Image.Image]:
    """Return one real image of each of the first classes, from the reference images in the model's folder.

    Without labels, return the first images. Return [] without reference images, or if their file is too large.
    """
    file = None if pipe.folder is None else pipe.folder / "reference.npz"
    if file is None or not file.is_file() or file.stat().st_size > _MOST_REFERENCE_BYTES:
        return []
    with arrays_of(file) as arrays:
        if "arr_0" not in arrays:  # the file holds only statistics
            return []
        images = arrays["arr_0"]
        check_arrays(file, images.dtype, images.shape, arrays.get("arr_1"))
        labels = arrays["arr_1"].tolist() if "arr_1" in arrays else list(range(len(images)))  # all different
    first = [labels.index(label) for label in sorted(set(labels))[:_MOST_SAMPLES]]
    pixels = to_images(images[first], pipe.tokenizer.image_size, pipe.tokenizer.channels)
    return [to_pil(image) for image in pixels.permute(0, 2, 3, 1).numpy()]
