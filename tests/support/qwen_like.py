"""Small tokenizers with a chat template that behaves like Qwen3's: thinking, and a switch for it.

The template is our own. It keeps the thoughts of replies after the last user message, leaves those
of earlier replies out, and with ``enable_thinking=False`` begins a reply behind an empty thought.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from tests.support.tiny_chat_model import make_chat_model, make_chat_tokenizer

HISTORY = """\
{%- set place = namespace(last_asked=-1) -%}
{%- for m in messages -%}
  {%- if m.role == 'user' -%}{%- set place.last_asked = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for m in messages -%}
  {{- '<|im_start|>' + m.role + '\\n' -}}
  {%- if m.role == 'assistant' and '</think>' in m.content -%}
    {%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\\n') -%}
    {%- if loop.index0 > place.last_asked -%}
      {{- '<think>\\n' + thought + '\\n</think>\\n\\n' -}}
    {%- endif -%}
    {{- m.content.split('</think>')[-1].lstrip('\\n') -}}
  {%- else -%}
    {{- m.content -}}
  {%- endif -%}
  {{- '<|im_end|>\\n' -}}
{%- endfor -%}
"""
TEMPLATE = (
    HISTORY
    + """\
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
  {%- if enable_thinking is defined and not enable_thinking -%}
    {{- '<think>\\n\\n</think>\\n\\n' -}}
  {%- endif -%}
{%- endif -%}
"""
)
WITHOUT_SWITCH = (
    HISTORY + "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
REMEMBERS = WITHOUT_SWITCH.replace("loop.index0 > place.last_asked", "true")
"""A template that leaves nothing out."""

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
"""Tokens of their own that are not called special, as in Qwen3."""
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEXT = (
    "You are playing a text game. Its present state:\n\nThink step by step, then give your next "
    "action in \\boxed{}.\nuser assistant system The answer is one two three, and the rest too. "
) * 20


def make_bpe_tokenizer(template: str = TEMPLATE) -> Any:
    """A byte-level BPE with Qwen's pieces, made here from a few sentences."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=500,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([_TEXT], trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in ADDED])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
    )
    fast.chat_template = template
    return fast


def make_character_tokenizer(template: str = TEMPLATE) -> Any:
    """One token per character; here the marks of thinking are special tokens."""
    special = ("<pad>", "<|end|>", "<unk>", *SPECIAL, "<think>", "</think>")
    fast = make_chat_tokenizer(template, special)
    fast.eos_token = "<|im_end|>"
    return fast


def make_qwen_like_model(folder: Path, template: str = TEMPLATE, **config: Any) -> Path:
    """Save a random model with the BPE tokenizer as an ordinary Hugging Face folder."""
    return make_chat_model(folder, "qwen2", tokenizer=make_bpe_tokenizer(template), **config)
