"""`kn completion`: scripts that let a shell complete verbs, options and files.

They are made from the parser and hold all words, so that pressing the key starts no Python.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kn_runtime.cli.common import emit_json

__all__ = ["EXAMPLES", "Word", "add_arguments", "execute", "words_of"]

EXAMPLES = """examples:
  kn completion bash > ~/.local/share/bash-completion/completions/kn
  kn completion zsh > ~/.zfunc/_kn
  kn completion fish > ~/.config/fish/completions/kn.fish

For one session of bash: source <(kn completion bash). For zsh, ~/.zfunc has to be in fpath before
compinit runs.
"""

DEVICES = {
    "best": ("best", "cpu", "reference", "cuda", "cuda:0"),
    "cpu": ("cpu", "neutral", "cuda:sm_80", "cuda:sm_90"),
}
"""Values of `--device`, by its default: of verbs that run, and of those that plan."""

FILES = ("FILE", "DIR", "MODEL", "OUT", "NAME=FILE")
"""Words in the metavariable of an argument that is a file."""


@dataclass(frozen=True)
class Word:
    """An option of a verb.

    Attributes:
        names: such as `-o` and `--output`.
        help: what it does, one line.
        takes: whether a value follows.
        choices: what the value may be; a file where there are none and `is_file`.
        is_file: whether the value is a file.
    """

    names: tuple[str, ...]
    help: str
    takes: bool
    choices: tuple[str, ...]
    is_file: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", choices=tuple(SHELLS), help="for which shell")


def execute(args: argparse.Namespace) -> int:
    """Print the script."""
    from kn_runtime.cli.main import VERBS, build_parser

    script = SHELLS[args.shell](VERBS, words_of(build_parser()))
    if args.json:
        emit_json({"shell": args.shell, "script": script})
    else:
        sys.stdout.write(script)
    return 0


def words_of(parser: argparse.ArgumentParser) -> dict[str, list[Word]]:
    """Return the options of each verb."""
    (verbs,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return {verb: list(_words(sub)) for verb, sub in verbs.choices.items()}


def _words(parser: argparse.ArgumentParser) -> Iterator[Word]:
    for action in parser._actions:
        text = " ".join((action.help or "").split()).replace("%%", "%")
        choices = tuple(map(str, action.choices or ()))
        if "--device" in action.option_strings:
            choices = DEVICES[action.default]
        meta = str(action.metavar or "")
        is_file = any(meta == f or meta.startswith(f"{f}.") for f in FILES)
        takes = action.nargs != 0
        yield Word(tuple(action.option_strings), text, takes, choices, is_file)


# ---- bash -----------------------------------------------------------------------------------


def _bash(verbs: Mapping[str, str], words: Mapping[str, list[Word]]) -> str:
    options = "\n".join(
        f'    {verb}) words="{" ".join(n for w in found for n in w.names)}'
        f'{_bash_choices(found)}" ;;'
        for verb, found in words.items()
    )
    values = "\n".join(
        f"    {'|'.join(f'{verb}:{n}' for n in w.names)}) "
        f'COMPREPLY=($(compgen -W "{" ".join(w.choices)}" -- "$word")); return ;;'
        for verb, found in words.items()
        for w in found
        if w.names and w.choices and w.takes
    )
    return f"""# bash completion of kn; made by: kn completion bash
_kn() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" verb="" words=""
  local i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${{COMP_WORDS[i]}}" in -*) ;; *) verb="${{COMP_WORDS[i]}}"; break ;; esac
  done
  if [ -z "$verb" ]; then
    COMPREPLY=($(compgen -W "{" ".join(verbs)} --help --version" -- "$word"))
    return
  fi
  case "$verb:$before" in
{values}
  esac
  case "$verb" in
{options}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
    =) COMPREPLY=($(compgen -f)) ;;
    *)
      if [ "$before" = "=" ]; then
        COMPREPLY=($(compgen -f -- "$word"))
      else
        COMPREPLY=($(compgen -f -- "$word"))
        case "$verb" in
{_bash_positional(words)}
        esac
      fi ;;
  esac
}}
complete -o filenames -F _kn kn
"""


def _bash_choices(found: list[Word]) -> str:
    return "".join(f" {c}" for w in found if not w.names for c in w.choices)


def _bash_positional(words: Mapping[str, list[Word]]) -> str:
    rows = [
        f"          {verb}) "
        f'COMPREPLY=($(compgen -W "{_bash_choices(found).strip()}" -- "$word")) ;;'
        for verb, found in words.items()
        if _bash_choices(found)
    ]
    return "\n".join(rows) or "          *) ;;"


# ---- zsh ------------------------------------------------------------------------------------


def _zsh(verbs: Mapping[str, str], words: Mapping[str, list[Word]]) -> str:
    names = "\n".join(f"    '{verb}:{_zsh_text(text)}'" for verb, text in verbs.items())
    cases = "\n".join(
        f"    {verb})\n      _arguments -s \\\n"
        + " \\\n".join(f"        {line}" for w in found for line in _zsh_lines(w))
        + " ;;"
        for verb, found in words.items()
    )
    return f"""#compdef kn
# zsh completion of kn; made by: kn completion zsh
_kn() {{
  local -a verbs
  verbs=(
{names}
  )
  if (( CURRENT == 2 )); then
    _describe 'verb' verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
{cases}
  esac
}}
_kn "$@"
"""


def _zsh_text(text: str) -> str:
    """Return a text that may stand in single quotes, in brackets and behind a colon."""
    for mark in "[]:":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("'", "'\\''")


def _zsh_lines(w: Word) -> Iterator[str]:
    value = f"({' '.join(w.choices)})" if w.choices else "_files" if w.is_file else " "
    if not w.names:
        yield f"'*:value:{value}'"
    for name in w.names:
        yield f"'*{name}[{_zsh_text(w.help)}]{f':value:{value}' if w.takes else ''}'"


# ---- fish -----------------------------------------------------------------------------------


def _fish(verbs: Mapping[str, str], words: Mapping[str, list[Word]]) -> str:
    lines = ["# fish completion of kn; made by: kn completion fish", "complete -c kn -e"]
    lines += [
        f"complete -c kn -n __fish_use_subcommand -f -a {verb} -d {_quoted(text)}"
        for verb, text in verbs.items()
    ]
    for verb, found in words.items():
        inside = f"complete -c kn -n '__fish_seen_subcommand_from {verb}'"
        for w in found:
            names = " ".join(_fish_name(n) for n in w.names)
            value = f" -x -a {_quoted(' '.join(w.choices))}" if w.choices else " -r" * w.takes
            if w.names:
                lines.append(f"{inside} {names}{value} -d {_quoted(w.help)}")
            elif w.choices:
                lines.append(f"{inside} -f -a {_quoted(' '.join(w.choices))}")
    return "\n".join(lines) + "\n"


def _fish_name(name: str) -> str:
    return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: Mapping[str, Callable[[Mapping[str, str], Mapping[str, list[Word]]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
