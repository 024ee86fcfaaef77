"""An agent whose tool charges a card once, however often its run is repeated."""

from agent.charging import Desk, Provider, UndecidedError, agent, make_handler
from agent.recording import RecordedModel

__all__ = ["Desk", "Provider", "RecordedModel", "UndecidedError", "agent", "make_handler"]
