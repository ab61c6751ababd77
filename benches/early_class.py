"""Episodes that deciding the class early saves, and what it costs in accuracy and in pay."""

from __future__ import annotations

from typing import Any

PLANS = ((8, 2), (8, 4), (16, 2), (16, 4))
"""(pairs of the full count, pairs per block)."""
ERRORS = (0.0, 0.05, 0.1, 0.2)


def run(quick: bool) -> dict[str, Any]:
    """Every plan x error over the mix of `benches/pairs/mix.py`; minutes on one core."""
    from benches.pairs.mix import over_phases

    num = 1000 if quick else 20_000
    plans = PLANS[:1] if quick else PLANS
    rows = [
        {"pairs": planned, "block": block, "error": error}
        | over_phases(planned, block, error, num, pay=not quick)
        for planned, block in plans
        for error in ERRORS
    ]
    return {"environments_per_phase": num, "rows": rows}


def table(result: dict[str, Any]) -> str:
    """One line per plan and error."""
    num = result["environments_per_phase"]
    lines = [
        f"means over the three phases, {num} environments each; accuracy: class against the truth",
        "pairs block error   saved   accuracy   full   same class   saved of: mastered  frontier  "
        "out of reach   rms error of regret   full",
    ]
    for row in result["rows"]:
        saved = row["saved_of"]
        pay = "                  -      -"
        if "regret_error" in row:
            pay = f"{row['regret_error']:>19.3f}   {row['regret_error_full']:.3f}"
        lines.append(
            f"{row['pairs']:>5} {row['block']:>5} {row['error']:>5.2f}  {row['saved']:>6.1%}"
            f"  {row['accuracy']:>8.2%}  {row['accuracy_full']:>6.2%}  {row['agreement']:>10.2%}"
            f"  {saved['mastered']:>18.1%}  {saved['frontier']:>8.1%}"
            f"  {saved['out_of_reach']:>12.1%}"
            f"   {pay}"
        )
    return "\n".join(lines)


def failures(result: dict[str, Any]) -> list[str]:
    """With error 0 no class may ever be another one than the full count's."""
    return [
        f"{row['pairs']} pairs in blocks of {row['block']}: error 0 and yet another class"
        for row in result["rows"]
        if row["error"] == 0.0 and row["agreement"] != 1.0
    ]
