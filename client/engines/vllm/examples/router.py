"""A router for two instances: the prefill instance reads prompts, the decode instance answers.

    python router.py --prefill http://127.0.0.1:8100 --decode http://127.0.0.1:8200 --port 8000

A request to /v1/completions or /v1/chat/completions goes first to the prefill instance, for one
token, so that the prompt is stored; then it goes unchanged to the decode instance. Short prompts go
only to the decode instance. If the prefill instance fails, the decode instance computes the prompt.
vLLM passes only the request's kv_transfer_params to a connector, so the router sets the session
there, from the request's metadata.session or else from its user.
"""

from __future__ import annotations

import argparse
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

SHORT = 1000  # characters; a shorter prompt goes only to the decode instance


def params_of(body: dict[str, Any]) -> dict[str, Any]:
    """The request's kv_transfer_params, with the session that its OpenAI fields name."""
    params, named = body.get("kv_transfer_params") or {}, body.get("metadata") or {}
    if not isinstance(params, dict) or not isinstance(named, dict):
        raise TypeError("kv_transfer_params and metadata must be objects")
    session = named.get("session") or body.get("user")
    return {"session": session, **params} if session else params


def make(prefill: str, decode: str) -> FastAPI:
    """The application."""
    app = FastAPI()
    client = httpx.AsyncClient(
        timeout=httpx.Timeout(600, connect=5), limits=httpx.Limits(max_connections=None)
    )

    async def read(path: str, body: dict[str, Any]) -> None:
        """Makes the prefill instance compute and store the prompt."""
        params = {**params_of(body), "store": True}
        params.pop("session", None)  # the decode instance stores the turn, with its answer
        first = {**body, "max_tokens": 1, "stream": False, "kv_transfer_params": params}
        first.pop("stream_options", None)
        first.pop("max_completion_tokens", None)
        try:
            await client.post(prefill + path, json=first)
        except httpx.HTTPError:
            return  # the decode instance computes the prompt

    @app.post("/v1/completions")
    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> Response:
        path = request.url.path
        try:
            body = await request.json()
            prompt = body.get("prompt") or body.get("messages") or ""
            params = params_of(body)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            message = f"the body is not a request of OpenAI's API: {error}"
            return JSONResponse({"error": {"message": message}}, 400)
        if len(str(prompt)) > SHORT:
            await read(path, body)
            params = {"wait": 5, **params}  # the prefill instance stores after its answer
        body["kv_transfer_params"] = params
        sent = client.build_request("POST", decode + path, json=body)
        try:
            reply = await client.send(sent, stream=True)
        except httpx.HTTPError as error:
            message = f"the decode instance does not answer: {error or type(error).__name__}"
            return JSONResponse({"error": {"message": message}}, 502)
        kind = reply.headers.get("content-type", "application/json")
        return StreamingResponse(reply.aiter_raw(), status_code=reply.status_code, media_type=kind)

    @app.get("/v1/models")
    async def models() -> Response:
        reply = await client.get(decode + "/v1/models")
        return Response(reply.content, reply.status_code, media_type="application/json")

    return app


def main() -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--prefill", required=True, help="address of the prefill instance")
    parser.add_argument("--decode", required=True, help="address of the decode instance")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    app = make(arguments.prefill.rstrip("/"), arguments.decode.rstrip("/"))
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
