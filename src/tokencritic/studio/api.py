"""The same functions over HTTP: JSON in, JSON out, images as base64 of PNG files. And the addresses of pictures."""

import asyncio
import base64
import dataclasses
import json
import re
import secrets
import threading
from collections.abc import Callable, Mapping
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
        requests = self.service.requests
        makers = {
            "generate": requests.generate,
            "refine": partial(self._with_image, requests.refine),
            "edit": partial(self._with_image, requests.edit),
        }
        return [
            Route("/api/model", self.model),
            *(Route(f"/api/{kind}", partial(self.run, make), methods=["POST"]) for kind, make in makers.items()),
            Route("/studio/pictures", self.upload, methods=["POST"]),
            Route("/studio/runs/{job}/{number:int}/{name}", self.picture),
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

    async def run(self, make: Callable[[Mapping[str, Any]], Work], request: Request) -> Response:
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
                self.service.cancel(client, job.kind)
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

    def picture(self, request: Request) -> Response:
        """`images.png`, `image_I.png`, `steps_I.png`, `steps.gif`, `given.png` of one of the client's own jobs."""
        number, name = request.path_params["number"], request.path_params["name"]
        try:
            job = self.service.find(request.state.client, request.path_params["job"])
            with self._drawing:
                content = self._draw(job, number, name)
        except InputError as error:
            return JSONResponse({"error": str(error)}, 404)
        return Response(content, media_type="image/gif" if name.endswith(".gif") else "image/png", headers=_FOR_EVER)

    def _draw(self, job: Job, number: int, name: str) -> bytes:
        pipe, result = self.service.pipe, job.result
        found = re.fullmatch(r"images\.png|steps\.gif|given\.png|(image|steps)_(\d{1,6})\.png", name)
        if number < len(result.sets) and found is not None:
            made, index = result.sets[number], int(found[2] or 0)
            if name == "images.png":
                return png(image_grid(made.images, names=pipe.names(made.labels)))
            if name == "steps.gif":
                return views.animation(pipe, made)
            if name == "given.png" and result.given is not None:
                return png(result.given)
            if found[1] is not None and index < len(made.images):
                return png(made.images[index] if found[1] == "image" else views.steps_sheet(pipe, made, index))
        raise InputError("there is no such picture")

    def _with_image(self, make: Callable[[Image.Image, Mapping[str, Any]], Work], values: Mapping[str, Any]) -> Work:
        text, others = values.get("image"), {name: value for name, value in values.items() if name != "image"}
        if not isinstance(text, str):
            raise InputError("image is missing; expected the base64 of a picture's file")
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError as error:
            raise InputError("image is not base64; expected that of a picture's file") from error
        return make(self.service.read_upload(data), others)

    def _told(self, job: Job) -> dict[str, Any]:
        """What a client is told of a finished job."""
        made, before, region = job.result.sets[0], job.result.before, job.result.region
        told = _facts(made) | {
            "labels": made.labels,
            "classes": self.service.pipe.names(made.labels),
            "settings": dataclasses.asdict(made.settings),
            "nfe": made.nfe,
            "seconds": made.seconds,
        }
        if before is not None:
            image, scores, mean_score = _facts(before).values()
            told |= {"before": image[0], "before_scores": scores and scores[0], "before_mean_score": mean_score}
        if region is not None:
            told["region"] = region.nonzero().flatten().tolist()
        if command := self.service.command(job):
            told |= {"seeds": [job.work.seed + index for index in range(len(made.labels))], "command": command}
        return told


def _facts(made: ImageSet) -> dict[str, Any]:
    """Images and what the critic thinks of them."""
    return {
        "images": [base64.b64encode(png(image)).decode("ascii") for image in made.images],
        "scores": None if made.scores is None else made.scores.tolist(),
        "mean_score": made.mean_score,
    }


def _json(body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError("the body is not JSON; expected an object") from error
    if not isinstance(values, dict):
        raise InputError(f"the body is a {type(values).__name__}; expected an object")
    return values
