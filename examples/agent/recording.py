"""A model whose responses are recorded, so that a repeated run makes the same tool calls."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pymongo import ReturnDocument, WriteConcern

from onewrite import Message


class RecordedModel(WrapperModel):
    """Asks the model once for each response of a job. If two deliveries ask at once, both use the response that was recorded first."""

    def __init__(self, model: Model, responses: Any, job: Message) -> None:
        super().__init__(model)
        self._job, self._responses = job, responses.with_options(write_concern=WriteConcern("majority"))

    async def request(
        self, messages: list[ModelMessage], model_settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        key = {"_id": self._job.child(f"response {len(messages)}")}
        recorded = await self._responses.find_one(key)
        if recorded is None:
            response = await super().request(messages, model_settings, parameters)
            fields = {"response": ModelMessagesTypeAdapter.dump_json([response]).decode()}
            recorded = await self._responses.find_one_and_update(
                key, {"$setOnInsert": fields}, upsert=True, return_document=ReturnDocument.AFTER
            )
        (message,) = ModelMessagesTypeAdapter.validate_json(recorded["response"])
        assert isinstance(message, ModelResponse)
        return message
