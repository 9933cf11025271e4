# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Figures of interleaved rounds, ratios of their medians, the table at the end, and verdicts as tests/verdict.bash has
them: one for each row that can be asked for."""

import os
import statistics
import time

from procs import Late

UNITS = {"ns": "ns", "us": "us", "msgs": "msg/s", "mbs": "MB/s", "cpu": "ns CPU/msg", "call": "ns/call"}


def short(value):
    """Three to four figures, readable at any size."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.2f}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.1f}k"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio_text(value):
    """Ratios below a half read better as fractions."""
    return f"1/{1 / value:.3g}" if 0 < value < 0.5 else f"{value:.3g}"


def counted(passed, failed, skipped, late):
    """The last line; returns the exit status."""
    print(f"{passed} passed, {failed} failed, {skipped} skipped, {late} late", flush=True)
    return 1 if failed else 75 if late else 0


class Report:
    def __init__(self, judge, again):
        """again: the command to which the name of a row is appended"""
        self.judge, self.again = judge, os.environ.get("VERDICT_AGAIN") or again
        self.section = os.environ.get("VERDICT_SECTION", "bench")
        self.checks, self.lines, self.faults, self.notes = [], [], [], []
        self.late, self.skipped = [], []
        self.verdicts = {"PASS": [], "WRONG": [], "SKIP": [], "LATE": []}

    def run(self, name, row, bench):
        """One row, and the verdict."""
        began, seen = time.monotonic(), [len(x) for x in (self.faults, self.late, self.skipped)]
        missed = self.missed()
        row(bench)
        faults, late, skipped = (x[n:] for x, n in zip((self.faults, self.late, self.skipped), seen))
        if self.missed() > missed:
            faults.append(f"{self.missed() - missed} targets missed")
        verdict = "WRONG" if faults else "LATE" if late else "SKIP" if skipped else "PASS"
        self.verdicts[verdict].append(name)
        took = "" if verdict == "SKIP" else f" {time.monotonic() - began:.1f} s"
        why = "; ".join(faults or late or skipped)
        print(f"{verdict} {name}{took}{': ' if why else ''}{why}", flush=True)
        if verdict == "WRONG":
            print(f"     again: {self.again} {name}", flush=True)

    def missed(self):
        return sum(verdict == "MISS" for *_, verdict in self.checks)

    def heading(self, row, text):
        print(f"\n{row}: {text}", flush=True)

    def figures(self, row, data):
        """data: {side: {metric: [value of each round]}}"""
        for side, metrics in data.items():
            for metric, values in metrics.items():
                low, mid, high = min(values), statistics.median(values), max(values)
                unit = UNITS.get(metric.split("_")[0], "")
                print(f"  {side:18} {metric:10} {short(mid):>8} {unit:11} ({short(low)} .. {short(high)})", flush=True)
                self.lines.append(f"@figure row={row} side={side} metric={metric} min={low:.6g} median={mid:.6g} "
                                  f"max={high:.6g} rounds={len(values)}")

    def ratio(self, row, data, metric, side, base, op, target, judged=True):
        """Judges median(side) / median(base); judged=False: for information, beside the same target."""
        if side not in data or base not in data:
            return
        mine, other = data[side][metric], data[base][metric]
        divisor = statistics.median(other)
        if divisor <= 0:
            self.fault(row, f"{base} {metric}: median is {divisor}")
            return
        each = [a / b for a, b in zip(mine, other) if b > 0]
        spread = f"{ratio_text(min(each))} .. {ratio_text(max(each))}" if each else ""
        self.value(row, f"{metric} {side} : {base}", statistics.median(mine) / divisor, op, target, ratio_text, spread,
                   judged)

    def value(self, row, name, value, op, target, text=short, spread="", judged=True):
        ok = value <= target if op == "<=" else value >= target
        verdict = "-" if not self.judge else ("pass" if ok else "MISS") if judged else ("yes" if ok else "no")
        print(f"  = {name:40} {text(value):>8}  target {op} {text(target):8} {verdict}" +
              (f"  (rounds {spread})" if spread else ""), flush=True)
        self.checks.append((row, name, text(value), f"{op} {text(target)}", verdict))
        self.lines.append(f"@check row={row} name={name.replace(' ', '_')} value={value:.6g} op={op} "
                          f"target={target:.6g} verdict={verdict}")

    def median(self, row, data, metric, side, op, target):
        """Judges median(side)."""
        if side in data:
            values = data[side][metric]
            self.value(row, f"{metric} {side}", statistics.median(values), op, target,
                       spread=f"{short(min(values))} .. {short(max(values))}")

    def note(self, row, text):
        print(f"  note: {text}", flush=True)
        self.notes.append((row, text))

    def skip(self, row, text):
        self.skipped.append(f"{row}: {text}")

    def fault(self, row, what):
        """what: a text, or what was raised"""
        text = f"{row}: {what}"
        print(f"  {text}", flush=True)
        (self.late if isinstance(what, Late) else self.faults).append(text)
        self.lines.append(f"@error row={row} text={str(what)!r}")

    def finish(self, lines_file=None):
        """The table and the last lines; returns the exit status."""
        if lines_file:
            with open(lines_file, "w", encoding="utf-8") as f:
                f.write("\n".join(self.lines) + "\n")
        if self.checks:
            print(f"\n{'row':16} {'what':40} {'value':>9}  {'target':12} verdict")
            for row, name, value, target, verdict in self.checks:
                print(f"{row:16} {name:40} {value:>9}  {target:12} {verdict}")
        for row, text in self.notes:
            print(f"note, {row}: {text}")
        print(f"\n{len(self.checks)} comparisons, {self.missed()} missed"
              + ("" if self.judge else " (times are not judged)"))
        for name in self.verdicts["LATE"]:
            print(f"LATE {self.section}-{name}: {self.again} {name}")
        return counted(*(len(self.verdicts[v]) for v in ("PASS", "WRONG", "SKIP", "LATE")))
