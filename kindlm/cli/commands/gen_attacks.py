"""What `kindlm gen --from PACKAGE:NAME` does: read attacks of a package, and write a suite."""

from __future__ import annotations

from pathlib import Path

from kindlm.cli.commands.gen import GenOptions
from kindlm.cli.commands.gen_recorded import refuse_beside, target_of, tell_command, write_suites
from kindlm.cli.console import fail, make_console, note, or_fail
from kindlm.errors import misuse
from kindlm.generate.corpora import attack_suites, read_attacks
from kindlm.generate.forms import slug


def write_attacks(options: GenOptions, source: str) -> int:
    """Write a suite of attacks and return the exit code."""
    others = {"--from-trace": options.from_trace, "--from-run": options.from_run}
    refuse_beside("--from", options, others)
    target = or_fail(target_of(options))
    attacks = or_fail(read_attacks(source, options.count + 1))
    has_more = len(attacks) > options.count
    attacks = attacks[: options.count]
    if not attacks:
        fail([misuse(f"{source} has no attack that a test can make.", "Choose another name.")])
    if target.is_agent and any(attack.tools for attack in attacks):
        hint = "Pass --provider and --model in place of --agent."
        fail([misuse(f"The attacks of {source} need simulated tools, as models have.", hint)])
    if target.model is None:
        hint = "Pass --provider and --model. With --agent, the model only judges."
        fail([misuse("There is no model for the tests.", hint)])
    file = Path(options.output, f"{slug(source)}.yaml")
    files = write_suites(options, or_fail(attack_suites(source, attacks, target, file)), file)
    if has_more:
        note(f"{source} has more attacks: pass --count.", make_console())
    tell_command(options, files, len(attacks))
    return 0
