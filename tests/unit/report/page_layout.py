"""Lay a page out in a browser: report elements that stick out or overlap, broken words, and empty plots."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

from opwatch.tools.pictures.browser import Browser

# The page is shown in a frame, so that it can be as narrow as a phone.
_HARNESS = """<!doctype html><meta charset=utf-8><body style="margin:0"><pre id=answer></pre><script>
const began = performance.now(), frame = document.createElement("iframe");
frame.style = "border:0;width:%(width)dpx;height:2000px";
const visible = box => box.width > 0 && box.height > 0;
const meet = (a, b) =>
  a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
frame.onload = () => {
  const page = frame.contentDocument, wide = page.documentElement.clientWidth, problems = [];
  const loaded = performance.now() - began;
  if (page.documentElement.scrollWidth > wide) problems.push("it is wider than its window");
  for (const element of page.querySelectorAll("main *")) {
    const box = element.getBoundingClientRect();
    if (!element.closest("svg") && visible(box) && (box.right > wide + 1 || box.left < -1))
      problems.push(element.tagName + " sticks out: " + element.textContent.slice(0, 40));
  }
  for (const names of page.querySelectorAll(".xs, .ys")) {
    const boxes = [...names.children].map(one => [one.textContent, one.getBoundingClientRect()]);
    for (let at = 1; at < boxes.length; at++)
      if (meet(boxes[at - 1][1], boxes[at][1])) problems.push(boxes[at - 1][0] + " meets " + boxes[at][0]);
  }
  for (const area of page.querySelectorAll(".area")) {
    const frame = area.closest("figure")?.getBoundingClientRect();
    const flags = [...area.querySelectorAll(".flag")].filter(one => one.tagName === "SPAN")
      .map(one => [one.textContent, one.getBoundingClientRect()]);
    flags.forEach(([name, box], at) => {
      for (const [other, there] of flags.slice(at + 1))
        if (meet(box, there)) problems.push(name + " lies on " + other);
      if (frame && (box.left < frame.left || box.right > frame.right))
        problems.push(name + " leaves its plot");
    });
  }
  const plots = [...page.querySelectorAll("svg")].map(svg => ({
    name: svg.getAttribute("aria-label"),
    size: [svg.getBoundingClientRect().width, svg.getBoundingClientRect().height],
    traces: [...svg.querySelectorAll("path")].filter(path =>
      !path.matches(".grid, .flag") && path.getTotalLength && path.getAttribute("d")).length,
  }));
  // A card's label is generated content, which has no position: measure a copy of it.
  for (const cell of page.querySelectorAll("td")) {
    const label = frame.contentWindow.getComputedStyle(cell, "::before");
    if (label.content === "none" || label.display === "none" || !cell.dataset.of) continue;
    const copy = page.createElement("span");
    copy.textContent = cell.dataset.of;
    for (const name of ["overflowWrap", "fontWeight", "textAlign"]) copy.style[name] = label[name];
    cell.prepend(copy);
    cell.classList.add("copied");
  }
  page.head.append(Object.assign(page.createElement("style"),
    {textContent: "td.copied::before{content:none!important}"}));
  for (const cell of page.querySelectorAll("td")) {
    const texts = page.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node; node = texts.nextNode())
      for (const word of node.data.matchAll(/[A-Za-z]{2,14}/g)) {
        const range = page.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1)
          problems.push("broken word: " + word[0]);
      }
  }
  document.getElementById("answer").textContent = JSON.stringify({problems, plots, loaded});
};
frame.src = "%(page)s";
document.body.append(frame);
</script>"""
_CONSOLE = re.compile(r"CONSOLE.*")
_REQUEST = re.compile(r"\"initiator\":\"(?!not an origin)[^\"]*\".*?\"url\":\"(https?://[^\"]*)\"")


@dataclass(frozen=True)
class PageLayout:
    """The layout's `problems`, the `plots` with names, sizes and traces, the load time, console messages, and
    outside addresses requested."""

    problems: list[str]
    plots: list[dict[str, Any]]
    seconds: float
    console: list[str]
    requests: list[str]


def inspect_page(browser: Browser, page: Path, width: int, *options: str) -> PageLayout:
    """Open a page at this width and inspect every element."""
    harness, log = page.with_name("harness.html"), page.with_name("network.json")
    harness.write_text(_HARNESS % {"width": width, "page": page.absolute().as_uri()})
    done = browser.run_browser(
        harness,
        [
            *("--allow-file-access-from-files", "--enable-logging=stderr", f"--log-net-log={log}"),
            *(f"--window-size={max(width, 500)},2000", "--virtual-time-budget=60000", "--dump-dom", *options),
        ],
    )
    out, err = done.stdout.decode(), done.stderr.decode(errors="replace")
    answer = re.search(r'<pre id="answer">(.*?)</pre>', out, re.DOTALL)
    assert answer and answer[1], err
    document = json.loads(unescape(answer[1]))
    # Requests by the browser itself have no origin.
    asked = _REQUEST.findall(log.read_text(errors="replace"))
    return PageLayout(
        problems=document["problems"],
        plots=document["plots"],
        seconds=document["loaded"] / 1e3,
        console=_CONSOLE.findall(err),
        requests=asked,
    )
