"""The same functions over HTTP: JSON in, JSON out, images as base64 of PNG files. And the addresses of pictures."""

import asyncio
import base64
import dataclasses
import json
import secrets
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from PIL import Image
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tokencritic import __version__
from tokencritic.errors import InputError
from tokencritic.pictures.grids import image_grid
from tokencritic.studio import views
from tokencritic.studio.service import Busy, Job, Service
from tokencritic.studio.work import ImageSet, Work, png

_SECONDS = 0.05
_STATUS = {"failed": 400, "late": 504, "cancelled": 409}
_FOR_EVER = {"cache-control": "private, max-age=3600, immutable"}


class Api:
    """Routes on a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._drawing = threading.Lock()  # one picture is drawn at a time, so that many who ask do not fill the memory

    def routes(self) -> list[Route]:
        requests, pipe = self.service.requests, self.service.pipe
        makers: dict[str, Callable[[dict[str, Any]], Work]] = {
            "generate": requests.generate,
            "refine": partial(self._with_image, requests.refine),
            "edit": partial(self._with_image, requests.edit),
        }
        pictures: dict[str, Callable[[ImageSet, int], bytes]] = {
            "images.png": lambda made, _: png(image_grid(made.images, names=[*filter(None, pipe.names(made.labels))])),
            "image_{index:int}.png": lambda made, index: png(made.images[index]),
            "steps_{index:int}.png": lambda made, index: png(views.steps_sheet(pipe, made, index)),
            "steps.gif": lambda made, _: views.animation(pipe, made),
        }
        place = "/studio/runs/{job}/{number:int}"
        return [
            Route("/api/model", self.model),
            *(Route(f"/api/{kind}", partial(self.run, make), methods=["POST"]) for kind, make in makers.items()),
            Route("/studio/pictures", self.upload, methods=["POST"]),
            *(Route(f"{place}/{name}", partial(self.picture, draw)) for name, draw in pictures.items()),
        ]

    def model(self, _: Request) -> Response:
        """What the model is, and what may be asked of it."""
        pipe, service = self.service.pipe, self.service
        return JSONResponse(
            {
                "version": __version__,
                "model": service.model,
                "parts": sorted(pipe.parts),
                "classes": pipe.names(range(pipe.generator.num_classes)),
                "image_size": pipe.tokenizer.image_size,
                "channels": pipe.tokenizer.channels,
                "grid": pipe.tokenizer.grid,
                "defaults": dataclasses.asdict(pipe.defaults),
                "limits": dataclasses.asdict(service.limits),
            }
        )

    async def run(self, make: Callable[[dict[str, Any]], Work], request: Request) -> Response:
        """Hand in what the body asks for, wait for it, and tell of it. A client that goes away takes its job along."""
        client = "api " + secrets.token_urlsafe(16)
        try:
            values = _json(await request.body())
            job = self.service.submit(client, await asyncio.to_thread(make, values))
        except InputError as error:
            return JSONResponse({"error": str(error)}, 400)
        except Busy as error:
            return JSONResponse({"error": str(error)}, 503, headers={"retry-after": "5"})
        while not job.finished.is_set():
            await asyncio.sleep(_SECONDS)
            self.service.ahead(job)
            if await request.is_disconnected():
                self.service.cancel(client, job.work.kind)
        if job.state != "done":
            return JSONResponse({"error": job.message}, _STATUS[job.state])
        return JSONResponse(await asyncio.to_thread(self._told, job))

    async def upload(self, request: Request) -> Response:
        """A picture for the page, as the bytes of its file; it is kept for the client that sent it."""
        try:
            image = await asyncio.to_thread(self.service.read_upload, await request.body())
        except InputError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({"id": self.service.keep_picture(request.state.client, image)})

    def picture(self, draw: Callable[[ImageSet, int], bytes], request: Request) -> Response:
        """A picture of one of the client's own jobs."""
        asked = request.path_params
        try:
            made = self.service.find(request.state.client, asked["job"]).result.sets[asked["number"]]
            with self._drawing:
                content = draw(made, asked.get("index", 0))
        except (InputError, IndexError):
            return JSONResponse({"error": "there is no such picture"}, 404)
        kind = "image/gif" if request.url.path.endswith(".gif") else "image/png"
        return Response(content, media_type=kind, headers=_FOR_EVER)

    def _with_image(self, make: Callable[[Image.Image, dict[str, Any]], Work], values: dict[str, Any]) -> Work:
        try:
            data = base64.b64decode(str(values.pop("image", "-")), validate=True)  # "-" is not base64
        except ValueError as error:
            raise InputError("image is missing or not base64; expected the base64 of a picture's file") from error
        return make(self.service.read_upload(data), values)

    def _told(self, job: Job) -> dict[str, Any]:
        """What a client is told of a finished job."""
        made, before, region = job.result.sets[0], job.result.before, job.result.region
        told = {
            "images": [_base64(image) for image in made.images],
            "scores": None if made.scores is None else made.scores.tolist(),
            "mean_score": made.mean_score,
            "labels": made.labels,
            "classes": self.service.pipe.names(made.labels),
            "settings": dataclasses.asdict(made.settings),
            "nfe": made.nfe,
            "seconds": made.seconds,
        }
        if before is not None:
            told |= {"before": _base64(before.images[0]), "before_mean_score": before.mean_score}
            told["before_scores"] = None if before.scores is None else before.scores[0].tolist()
        if region is not None:
            told["region"] = region.nonzero().flatten().tolist()
        if command := job.work.command(self.service.pipe, self.service.model, made):
            told |= {"seeds": [job.work.seed + index for index in range(len(made.labels))], "command": command}
        return told


def _base64(image: Image.Image) -> str:
    return base64.b64encode(png(image)).decode("ascii")


def _json(body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError("the body is not JSON; expected an object") from error
    if not isinstance(values, dict):
        raise InputError(f"the body is a {type(values).__name__}; expected an object")
    return values
