"""What all commands share: the application, its error boundary and its output."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from analysis.cli._streams import safe_streams
from analysis.vocabulary.strict_json import json_text
from analysis.vocabulary.text import printable

if TYPE_CHECKING:
    from rich.console import Console


class _Group(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _print_help(self, ctx, args[:1])
        return super().parse_args(ctx, args)


class Command(TyperCommand):
    """A command whose arguments may begin with a minus sign: `solve entropy_fraction -4`, `prove "-q[i]" 0`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take what begins with one dash and is no option for an argument; a word with two dashes stays an option."""
        _print_help(self, ctx, args)
        ctx.ignore_unknown_options = any(re.match("-[^-]", word) for word in args)
        return super().parse_args(ctx, args)


def _print_help(command: Any, ctx: Any, args: Sequence[str]) -> None:
    """Print the help page on our own stdout: typer's writes UTF-8 where the terminal has said ASCII."""
    if "--help" in args or "-h" in args:
        print(command.get_help(ctx))
        raise typer.Exit


app = typer.Typer(
    name="attnsym",
    cls=_Group,
    help="Derive, predict, measure and audit the scores of scaled dot-product attention.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 110, "help_option_names": ["-h", "--help"]},
)

# Newer typer carries its own copy of click: take the base class of its errors from typer, whichever copy that is.
_ClickException: Any = typer.BadParameter.__mro__[2]

Number = TypeVar("Number", int, float)


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

MOST_IN_A_RANGE = 1000
EXIT_FAILED_VERDICT = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

_LONGEST_WORD = 200  # of an error: what arrived may be a whole file


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        from attnsym import __version__

        libraries = ", ".join(f"{name} {metadata.version(name)}" for name in ("numpy", "scipy", "sympy"))
        print(f"attnsym {__version__} ({libraries})")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the versions and exit.")
]


WHERE_TO_BEGIN = """\
attnsym explains, predicts, measures and audits the scores of scaled dot-product attention. Begin with

  attnsym report                            everything on one page, report.html
  attnsym explain --query 1,0 --keys "1,0;0,1" --values "2;6"
                                            one query, number by number
  attnsym derive score-variance             why the variance of a score is d_k
  attnsym predict entropy --d-k 512 --n-keys 10 --scale sqrt,unscaled
                                            what dividing by the root of d_k does
  attnsym audit --example                   a trained model, head by head

attnsym --help names all commands, attnsym COMMAND --help shows examples of each."""


@app.callback()
def _root(context: typer.Context, version: VersionOption = False) -> None:
    if context.invoked_subcommand is None:
        print(WHERE_TO_BEGIN)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run the command line and return its exit code.

    Returns
    -------
    int
        0; 1 for a verdict that is not a pass; 2 for bad input, with one sentence on stderr, and where the output cannot
        be written; 130 after Ctrl-C.
    """
    with safe_streams():
        code = _run(arguments)
        try:
            print(end="", flush=True)
        except OSError as error:
            return _bad_input(str(error))
        return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = app(args=arguments, standalone_mode=False, prog_name="attnsym")
    except typer.Exit as stop:
        return int(stop.exit_code)
    except _ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error)
            return EXIT_BAD_INPUT
        return _bad_input(error.format_message() + _arrived(error))
    except (typer.Abort, KeyboardInterrupt):
        print("attnsym: stopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    except OSError as error:
        named = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        return _bad_input(named)
    except (ValueError, ImportError, ArithmeticError) as error:
        return _bad_input(str(error))
    except MemoryError:
        return _bad_input("not enough memory for this input")
    return code if isinstance(code, int) else 0


def _arrived(error: Any) -> str:
    """Say what a failed conversion was given, where the library's own sentence leaves it out."""
    details = getattr(error.__cause__, "errors", None)  # of the validation error behind it
    given = [repr(item["input"]) for item in details()] if callable(details) else []
    return f": got {', '.join(given)}" if given else ""


def _bad_input(sentence: str) -> int:
    words = (word if len(word) <= _LONGEST_WORD else f"{word[:_LONGEST_WORD]}…" for word in sentence.split())
    print(f"attnsym: error: {printable(' '.join(words))}", file=sys.stderr)
    return EXIT_BAD_INPUT


def console() -> Console:
    """Return a console on stdout that prints names verbatim (no markup, no highlighting) and never wraps in a pipe."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False, soft_wrap=not sys.stdout.isatty())


def print_json(payload: Any) -> None:
    """Print strict JSON: NaN and infinities are the caller's to replace by None."""
    print(json_text(payload, encoding=sys.stdout.encoding or "utf-8"))


def scale_option(text: str | None) -> float | str | None:
    """Read a scale that is a number, else leave its name or expression to `resolve_scale`."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text


def int_list(text: str, name: str) -> list[int]:
    """Read ``"16,64,1e3"`` and ranges, ``"16:1024:2x"`` or ``"10:50:10"``; ValueError names the option and the part."""
    return [number for part in text.split(",") for number in _whole_numbers(part.strip(), name)]


def _whole_numbers(part: str, name: str) -> list[int]:
    if ":" not in part:
        return [_read(part, _whole, name, "whole numbers")]
    bounds = part.split(":")
    step = bounds[2] if len(bounds) == 3 else "2x"
    factor = step.endswith("x")
    try:
        first, last, by = (_whole(bound) for bound in (bounds[0], bounds[1], step.removesuffix("x")))
    except (ValueError, IndexError):
        first, last, by = 0, 0, 0
    if not (len(bounds) in (2, 3) and 1 <= first <= last and by >= 1 + factor):
        raise ValueError(f"{name} takes ranges as first:last:step or first:last:2x: got {part!r}")
    if not factor and (last - first) // by >= MOST_IN_A_RANGE:
        raise ValueError(f"{name} takes at most {MOST_IN_A_RANGE} values of a range: got {part!r}")
    if not factor:
        return list(range(first, last + 1, by))
    return [first * by**i for i in range(MOST_IN_A_RANGE) if first * by**i <= last]


def _whole(text: str) -> int:
    """Read 1024, or 1e3: a power of ten is exact however long."""
    mantissa, e, exponent = text.strip().lower().partition("e")
    if e and exponent.isdecimal() and len(exponent) <= 2:
        power: int = 10 ** int(exponent)
        return int(mantissa) * power
    return int(text)


def float_list(text: str, name: str) -> list[float]:
    """Read ``"0,1.5,-2"``; ValueError names the option and the offending part."""
    return [_read(part, float, name, "numbers") for part in text.split(",")]


def text_list(text: str) -> list[str]:
    """Read ``"sqrt,unscaled"``; commas inside parentheses do not separate."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _read(part: str, kind: Callable[[str], Number], name: str, wanted: str) -> Number:
    try:
        return kind(part.strip())
    except ValueError:
        raise ValueError(f"{name} takes {wanted} separated by commas: got {part.strip()!r}") from None
