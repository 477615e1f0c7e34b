"""`/health` and `/metrics`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from ropewalk.serve.api.routes.parts import reply, service_of
from ropewalk.serve.api.service import Phase

router = APIRouter()


@router.get("/health")
async def health(request: Request) -> Response:
    """Whether requests are answered: 200, or 503 while the model is loaded and while the server shuts down."""
    phase = service_of(request).phase
    return reply({"status": phase.value}, 200 if phase is Phase.READY else 503)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Figures for Prometheus."""
    return Response(service_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
