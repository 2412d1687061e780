"""Helpers make the actions and messages of one service of a bot convenient; write your own, or use `LLMHelper`."""

from .base import HelperRegistry, RTVIClientHelper
from .llm import LLMHelper

__all__ = ["HelperRegistry", "LLMHelper", "RTVIClientHelper"]
