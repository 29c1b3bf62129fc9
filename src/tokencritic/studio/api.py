"""The HTTP API for programs. Requests and responses are JSON. Images in responses are PNG files as base64."""

import asyncio
import base64
import dataclasses
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

from PIL import Image
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tokencritic import __version__
from tokencritic.errors import InputError
from tokencritic.files import parse_json
from tokencritic.studio.service import Busy, Job, Service
from tokencritic.studio.work import Work, png

_SECONDS = 0.05
_STATUS = {"failed": 400, "late": 504, "cancelled": 409}


class Api:
    """The routes of the HTTP API on a service."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def routes(self) -> list[Route]:
        requests = self.service.requests
        makers: dict[str, Callable[[dict[str, Any]], Work]] = {
            "generate": requests.generate,
            "refine": partial(self._with_image, requests.refine),
            "edit": partial(self._with_image, requests.edit),
        }
        runs = (Route(f"/api/{kind}", partial(self.run, make), methods=["POST"]) for kind, make in makers.items())
        return [Route("/api/model", self.model), *runs]

    def model(self, _: Request) -> Response:
        """Return the facts of the model, its default settings and the limits of requests."""
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
        """Submit a run, wait for it and return its result. A client that disconnects cancels its run.

        make: creates the work from the JSON object in the body.
        """
        client = "api " + secrets.token_urlsafe(16)
        try:
            values = read_object(await request.body())
            job = self.service.submit(client, await asyncio.to_thread(make, values))
        except InputError as error:
            return JSONResponse({"error": str(error)}, 400)
        except Busy as error:
            return JSONResponse({"error": str(error)}, 503, headers={"retry-after": "5"})
        while not job.finished.is_set():
            await asyncio.sleep(_SECONDS)
            self.service.ahead(job)
            if await request.is_disconnected():
                self.service.cancel(client, job.id)
        self.service.forget(job)
        if job.state != "done":
            return JSONResponse({"error": job.message}, _STATUS[job.state])
        return JSONResponse(await asyncio.to_thread(self._told, job))

    def _with_image(self, make: Callable[[Image.Image, dict[str, Any]], Work], values: dict[str, Any]) -> Work:
        try:
            data = base64.b64decode(str(values.pop("image", "-")), validate=True)  # "-" is not base64
        except ValueError as error:
            raise InputError("image is missing or not base64; expected the base64 of a picture's file") from error
        return make(self.service.read_upload(data), values)

    def _told(self, job: Job) -> dict[str, Any]:
        """Return the response for a finished job."""
        made, before, region = job.result.sets[0], job.result.before, job.result.region
        told = {
            "images": [_base64(image) for image in made.images],
            "scores": None if made.scores is None else made.scores.tolist(),
            "mean_score": made.mean_score,
            "recognised": made.recognised,
            "labels": made.labels,
            "classes": self.service.pipe.names(made.labels),
            "settings": dataclasses.asdict(made.settings),
            "nfe": made.nfe,
            "cost": made.cost,
            "seconds": made.seconds,
        }
        if before is not None:
            told |= {"before": _base64(before.images[0]), "before_mean_score": before.mean_score}
            told["before_scores"] = None if before.scores is None else before.scores[0].tolist()
        if region is not None:
            told["region"] = region.nonzero().flatten().tolist()
        told["command"] = job.work.command(self.service.pipe, self.service.model, made)
        told["seeds"] = [job.work.seed + index for index in range(len(made.labels))]
        return told


def _base64(image: Image.Image) -> str:
    return base64.b64encode(png(image)).decode("ascii")


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in the body of a request. Raises InputError for any other body."""
    values = parse_json("the body", body)
    if not isinstance(values, dict):
        raise InputError(f"the body is a {type(values).__name__}; expected an object")
    return values
