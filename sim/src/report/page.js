"use strict";
// Draws the run. Only what is in view is drawn, and of that at most ELEMENTS_MAX elements.
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const ELEMENTS_MAX = 1500;
  const ROW = 22;
  const SPACE = "http://www.w3.org/2000/svg";
  const [AT, LANE, KIND, TEXT, FROM, SINCE, UNTIL] = [0, 1, 2, 3, 4, 5, 6];

  const COLORS = {
    coordinator: "#5e35b1", guest: "#ad1457", attempt: "#00796b", store: "#455a64", faults: "#c62828",
    message: "#1f5fbf", barrier: "#b26a00", answer: "#9aa4b1", store_arrow: "#9aa4b1",
    upload: "#26a69a", pause: "#b0b7c3", fault: "#c62828", commit: "#2e7d32",
    pending: "#ffcc80", committing: "#ff8f00", retained: "#66bb6a",
    uploading: "#b2dfdb", stored: "#26a69a", staged: "#5c9ce6", held: "#66bb6a",
    released: "#d7ccc8", condemned: "#8d6e63",
  };
  const LEGEND = [
    ["retained", "checkpoint retained / file held"], ["pending", "pending"], ["committing", "committing"],
    ["stored", "file its attempt's"], ["staged", "file the leader's"], ["released", "held by none"],
    ["condemned", "condemned"], ["pause", "stands still"], ["fault", "fault"],
  ];

  // ---- small helpers: every text becomes a text node ----
  const html = (name, attributes, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key === "onclick") element.addEventListener("click", value);
      else element.setAttribute(key, value);
    }
    for (const child of children) element.append(child);
    return element;
  };
  let drawn = 0;
  const shape = (parent, name, attributes, title) => {
    if (drawn >= ELEMENTS_MAX) return null;
    drawn += 1;
    const element = document.createElementNS(SPACE, name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "text") element.textContent = value;
      else element.setAttribute(key, value);
    }
    if (title) {
      const tip = document.createElementNS(SPACE, "title");
      tip.textContent = title;
      element.append(tip);
    }
    parent.append(element);
    return element;
  };
  const seconds = (micros) => `${(micros / 1e6).toFixed(4)} s`;
  // The first place in a sorted list whose value is not below a bound.
  const lowerBound = (count, value, bound) => {
    let low = 0;
    let high = count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (value(middle) < bound) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  // ---- the lines, with one more for what was broken ----
  const kinds = page.kinds.concat("broken");
  const BROKEN = kinds.length - 1;
  const lines = page.lines;
  const lanes = page.lanes;
  if (page.promise) lines.push([page.end, -1, BROKEN, `${page.promise} is broken: ${page.what}`, -1, -1, -1]);
  const kindOf = (line) => kinds[line[KIND]];
  const lineAt = (time) => lowerBound(lines.length, (index) => lines[index][AT], time);
  const choicesOf = new Map();
  for (const choice of page.choices) {
    const index = Math.min(choice.line, lines.length - 1);
    if (!choicesOf.has(index)) choicesOf.set(index, []);
    choicesOf.get(index).push(choice);
  }

  // ---- who they are, for people ----
  for (const lane of lanes) {
    const subtask = /as (subtask [\d.]+)/.exec(lane.about);
    lane.title = subtask ? `${lane.name}, ${subtask[1].replace("subtask ", "")}` : lane.name;
  }

  // ---- summary ----
  const summary = byId("summary");
  summary.className = page.promise ? "broken" : "held";
  summary.append(html("h1", {}, page.promise
    ? `${page.promise} is broken (${page.class})`
    : `Every promise held; ${page.completed} checkpoints completed`));
  if (page.promise) summary.append(html("div", { class: "what mono" }, page.class === "liveness" ? page.what.split("; ")[0] : page.what));
  if (page.meaning) summary.append(html("div", {}, `The promise: ${page.meaning}`));
  if (page.planted) {
    summary.append(html("div", {}, "A planted fault: the guard ", html("code", {}, page.planted),
      " is held open, so it lets everything pass."));
  }
  summary.append(html("div", { class: "about" }, `${page.run}. Again: `, html("code", {}, page.command)));
  const columns = html("div", { class: "columns" });
  if (page.choices.length) {
    const list = html("ol", {});
    for (const choice of page.choices) {
      list.append(html("li", { class: "link", onclick: () => goToLine(choice.line) },
        `${seconds(choice.at)}  ${choice.text}`, html("span", { class: "label mono" }, choice.choices.join(", "))));
    }
    columns.append(html("div", {}, html("h2", {},
      `What it takes: ${page.choices.length} events in which the choice is not the benign one`), list));
  }
  if (page.waits.length) {
    const list = html("ul", {});
    for (const wait of page.waits) list.append(html("li", {}, wait));
    columns.append(html("div", {}, html("h2", {}, "What waits for what at the end"), list));
  }
  const details = html("details", {}, html("summary", {}, "What the world was like"),
    html("pre", { class: "mono" }, page.profile.join("\n")));
  columns.append(details);
  summary.append(columns);

  // ---- overview: everything over the world's time ----
  const overview = byId("overview-svg");
  const LEFT = 150;
  const OVER_ROW = 14;
  const SECTION_ROWS = { Processes: 14, Checkpoints: 14, Files: 24 };
  const end = Math.max(page.end, 1);
  let view = [0, end * 1.01];
  for (const [name, text] of LEGEND) {
    byId("overview-legend").append(html("span", {}, html("i", { style: `background:${COLORS[name]}` }), text));
  }
  const ticks = { faults: new Map(), commits: [] };
  lines.forEach((line, index) => {
    if (kindOf(line) === "fault") {
      if (!ticks.faults.has(line[LANE])) ticks.faults.set(line[LANE], []);
      ticks.faults.get(line[LANE]).push(index);
    } else if (kindOf(line) === "commit") ticks.commits.push(index);
  });
  const pauses = lines.map((line, index) => [line, index]).filter(([line]) => kindOf(line) === "pause");

  const processes = lanes.map((lane, index) => ({
    label: lane.title, kind: lane.kind, index,
    group: lane.kind === "attempt" ? `attempts of ${lane.title.split(", ")[1] || "?"}` : ["coordinator", "guest"].includes(lane.kind) ? `${lane.kind}s` : lane.name,
    from: lane.from ?? 0, until: lane.until ?? end,
    title: `${lane.name}: ${lane.about || "from the beginning"}; ${lane.how || "to the end"}`,
  })).sort((a, b) => rank(a) - rank(b) || a.group.localeCompare(b.group) || a.from - b.from || a.index - b.index);
  function rank(row) {
    return { faults: 0, guest: 1, coordinator: 2, store: 3, attempt: 4 }[row.kind] ?? 5;
  }
  const timesOf = (row) => {
    const times = row.spans.flatMap((span) => [span.from, span.until]).concat(row.instants.map((one) => one.at));
    return times.length ? [Math.min(...times), Math.max(...times)] : [0, 0];
  };
  const historyRows = (rows, group, label, short) => rows.map((row) => {
    const [from, until] = timesOf(row);
    return { label: label(row), short: short(row), group, row, from, until };
  }).sort((a, b) => a.from - b.from);
  const checkpoints = historyRows(page.checkpoints, "checkpoints", (row) => `checkpoint ${row.id}`, (row) => `${row.id}`);
  const files = historyRows(page.files, "files", (row) => row.name, (row) => row.name.replace("shared/", ""));

  const x = (time) => LEFT + (time - view[0]) / (view[1] - view[0]) * (overview.clientWidth - LEFT - 10);
  const timeAt = (pixel) => view[0] + (pixel - LEFT) / (overview.clientWidth - LEFT - 10) * (view[1] - view[0]);
  const clamp = (pixel) => Math.max(LEFT, Math.min(overview.clientWidth - 10, pixel));
  const bar = (from, until, y, height, color, title, extra) => {
    const left = clamp(x(from));
    const width = Math.max(clamp(x(until)) - left, from === until ? 0 : 1);
    if (until < view[0] || from > view[1]) return;
    shape(overview, "rect", { x: left, y, width, height, fill: color, rx: 1.5, ...extra }, title);
  };
  // Ticks that would fall on one pixel are drawn once.
  const tickRow = (indexes, y, color, height) => {
    let last = -1;
    const first = lowerBound(indexes.length, (place) => lines[indexes[place]][AT], view[0]);
    for (let place = first; place < indexes.length; place += 1) {
      const line = lines[indexes[place]];
      if (line[AT] > view[1]) break;
      const pixel = Math.round(x(line[AT]));
      if (pixel <= last + 1) continue;
      last = pixel;
      shape(overview, "rect", { x: pixel - 1, y, width: 2.5, height, fill: color }, `${seconds(line[AT])} ${line[TEXT]}`);
    }
  };
  const MARKS = { cut: "#000", acknowledged: "#1f5fbf", restored: "#7b1fa2", pin: "#000", aborted: COLORS.fault,
    gone: "#000", lost: COLORS.fault, delete: "#6d4c41" };

  function drawOverview() {
    overview.replaceChildren();
    drawn = 0;
    const width = byId("overview-scroll").clientWidth;
    overview.setAttribute("width", width);
    overview.style.width = `${width}px`;
    let y = 18;
    axis(width);
    // One row each if there are few; else rows are shared by what does not overlap.
    const section = (name, rows, draw) => {
      const shown = rows.filter((row) => row.until >= view[0] && row.from <= view[1]);
      shape(overview, "text", { x: 6, y: y + 10, class: "section", text: name });
      y += OVER_ROW;
      const limit = SECTION_ROWS[name];
      if (shown.length <= limit) {
        for (const row of shown) {
          shape(overview, "text", { x: 14, y: y + 10, text: row.label });
          draw(row, y, false);
          y += OVER_ROW;
        }
      } else {
        y = shared(shown, limit, y, draw);
      }
      y += 6;
    };
    const shared = (shown, limit, top, draw) => {
      const tracks = [];
      let left = 0;
      for (const row of shown) {
        let track = 0;
        while (track < tracks.length && (tracks[track].group !== row.group || tracks[track].until > row.from)) track += 1;
        if (track === limit) { left += 1; continue; }
        if (track === tracks.length) tracks.push({ group: row.group, until: 0, pixel: -1 });
        tracks[track].until = row.until;
        // What would fall on one pixel is drawn once.
        if (x(row.until) < tracks[track].pixel + 1) continue;
        tracks[track].pixel = x(row.until);
        draw(row, top + track * OVER_ROW, true);
      }
      tracks.forEach((track, place) => shape(overview, "text", { x: 14, y: top + place * OVER_ROW + 10, class: "dim", text: track.group }));
      if (left) {
        shape(overview, "text", { x: LEFT, y: top + limit * OVER_ROW + 10, class: "dim",
          text: `${left} of ${shown.length} have no room here: zoom in to see them` });
      }
      return top + (tracks.length + (left ? 1 : 0)) * OVER_ROW;
    };
    const inside = (from, until, top, text, color) => {
      const room = Math.floor((clamp(x(until)) - clamp(x(from)) - 6) / 6);
      if (room < Math.min(3, text.length) || until < view[0] || from > view[1]) return;
      shape(overview, "text", { x: clamp(x(from)) + 3, y: top + 10, style: `fill:${color || "#1d2430"};font-size:10px;pointer-events:none`,
        text: text.length > room ? text.slice(0, room) : text });
    };
    section("Processes", processes, (row, top, isShared) => {
      bar(row.from, row.until, top + 3, OVER_ROW - 6, row.kind === "faults" ? "#fbe3e1" : COLORS[row.kind], row.title,
        { "fill-opacity": row.kind === "faults" ? 1 : 0.55 });
      for (const [line] of pauses) {
        if (line[LANE] === row.index) bar(line[AT], Math.min(line[UNTIL], row.until), top + 2, OVER_ROW - 4, COLORS.pause, line[TEXT]);
      }
      if (row.kind === "store") tickRow(ticks.commits, top + 2, COLORS.commit, OVER_ROW - 4);
      tickRow(ticks.faults.get(row.index) || [], top + 1, COLORS.fault, OVER_ROW - 3);
      if (isShared) inside(row.from, row.until, top, lanes[row.index].name.split(" ")[1] || "", "#000");
      const lane = lanes[row.index];
      if (lane.until !== null && lane.until >= view[0] && lane.until <= view[1]) {
        shape(overview, "text", { x: x(lane.until) - 4, y: top + 11, style: `fill:${COLORS.fault};font-weight:700`, text: "\u2715" },
          `${seconds(lane.until)} ${lane.name} ${lane.how}`);
      }
    });
    const history = (row, top, isShared) => {
      row.row.spans.forEach((span, place) => {
        bar(span.from, span.until, top + 2, OVER_ROW - 4, COLORS[span.name],
          `${row.label}: ${span.name}, ${span.text} (${seconds(span.from)} to ${seconds(span.until)})`);
        const intervals = span.name === "held" && row.row.intervals ? row.row.intervals.join(", ") : "";
        const text = isShared && place === 0 ? row.short : intervals ? `held: ${intervals}` : span.name;
        inside(span.from, span.until, top, text);
      });
      for (const one of row.row.instants) {
        if (one.at < view[0] || one.at > view[1]) continue;
        const text = { aborted: "\u2715", lost: "\u2715", gone: "\u25aa" }[one.name];
        const color = MARKS[one.name] || "#000";
        const title = `${seconds(one.at)} ${row.label}: ${one.text}`;
        if (text) shape(overview, "text", { x: x(one.at) - 4, y: top + 11, style: `fill:${color}`, text }, title);
        else shape(overview, "rect", { x: x(one.at) - 0.75, y: top + 1, width: 1.5, height: OVER_ROW - 3, fill: color }, title);
      }
    };
    section("Checkpoints", checkpoints, history);
    section("Files", files, history);
    if (page.promise && end >= view[0] && end <= view[1]) {
      shape(overview, "rect", { x: x(end) - 1, y: 16, width: 2, height: y - 16, fill: COLORS.fault }, page.promise);
    }
    overview.setAttribute("height", y + 4);
    shape(overview, "rect", { id: "window", x: 0, y: 0, width: 0, height: y, fill: "#1f5fbf", "fill-opacity": 0.08,
      "pointer-events": "none" });
    markWindow();
  }
  function axis(width) {
    const span = view[1] - view[0];
    const raw = span / Math.max(4, (width - LEFT) / 120);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= raw);
    for (let time = Math.ceil(view[0] / step) * step; time <= view[1]; time += step) {
      shape(overview, "line", { x1: x(time), x2: x(time), y1: 14, y2: 4000, stroke: "#eceff3" });
      shape(overview, "text", { x: x(time) + 2, y: 11, class: "dim", text: `${+(time / 1e6).toFixed(6)} s` });
    }
  }
  function zoom(factor, around) {
    const from = around - (around - view[0]) * factor;
    const span = Math.min(Math.max((view[1] - view[0]) * factor, 50), end * 1.01);
    view = [Math.max(0, Math.min(from, end * 1.01 - span)), 0];
    view[1] = view[0] + span;
    drawOverview();
  }
  const middle = () => (view[0] + view[1]) / 2;
  byId("zoom-in").addEventListener("click", () => zoom(0.5, middle()));
  byId("zoom-out").addEventListener("click", () => zoom(2, middle()));
  byId("zoom-all").addEventListener("click", () => { view = [0, end * 1.01]; drawOverview(); });
  overview.addEventListener("wheel", (event) => {
    if (event.shiftKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event.offsetX));
  }, { passive: false });
  let drag = null;
  overview.addEventListener("pointerdown", (event) => { drag = { x: event.offsetX, view: [...view], moved: false }; });
  overview.addEventListener("pointermove", (event) => {
    if (!drag || !event.buttons) return;
    const move = event.offsetX - drag.x;
    if (Math.abs(move) < 4 && !drag.moved) return;
    drag.moved = true;
    const span = drag.view[1] - drag.view[0];
    const from = drag.view[0] - move / (overview.clientWidth - LEFT - 10) * span;
    view[0] = Math.max(0, Math.min(from, end * 1.01 - span));
    view[1] = view[0] + span;
    drawOverview();
  });
  overview.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved && event.offsetX > LEFT) goToLine(lineAt(timeAt(event.offsetX)));
    drag = null;
  });

  // ---- steps: one row a line, lanes beside it ----
  const hidden = new Set(["call", "answer"]);
  let wanted = "";
  let wantedLane = -1;
  let rows = [];
  let selected = -1;
  const scroll = byId("scroll");
  const lanesSvg = byId("lanes-svg");
  const columnsSvg = byId("columns-svg");

  for (const kind of page.kinds) {
    const box = html("input", { type: "checkbox" });
    box.checked = !hidden.has(kind);
    box.addEventListener("change", () => {
      if (box.checked) hidden.delete(kind);
      else hidden.add(kind);
      refilter();
    });
    byId("kinds").append(html("label", { class: "kind" }, box, kind));
  }
  byId("lane").append(html("option", { value: -1 }, "every lane"));
  processes.forEach((row) => byId("lane").append(html("option", { value: row.index }, row.label)));
  byId("lane").addEventListener("change", (event) => { wantedLane = Number(event.target.value); refilter(); });
  byId("filter").addEventListener("input", (event) => { wanted = event.target.value.toLowerCase(); refilter(); });
  byId("go-end").textContent = page.promise ? "to the broken promise" : "to the end";
  byId("go-end").addEventListener("click", () => goToLine(lines.length - 1));

  // Lanes share a column if one ends before the other begins.
  const slots = [];
  for (const group of ["faults", "guest", "coordinator", "store", "attempt"]) {
    const members = processes.filter((row) => row.kind === group).map((row) => row.index)
      .sort((a, b) => lanes[a].first_line - lanes[b].first_line);
    const first = slots.length;
    for (const index of members) {
      let slot = first;
      while (slot < slots.length && slots[slot].until >= lanes[index].first_line) slot += 1;
      if (slot === slots.length) slots.push({ kind: group, until: 0, lanes: [] });
      slots[slot].until = lanes[index].last_line;
      slots[slot].lanes.push(index);
      lanes[index].slot = slot;
    }
  }
  const columnWidth = () => Math.max(46, Math.min(120, scroll.clientWidth * 0.52 / slots.length));
  const laneX = (index) => (lanes[index].slot + 0.5) * columnWidth();
  const diagramWidth = () => slots.length * columnWidth();

  function keeps(line, index) {
    if (line[KIND] === BROKEN) return true;
    if (hidden.has(kindOf(line)) && !choicesOf.has(index)) return false;
    if (wantedLane >= 0 && line[LANE] !== wantedLane && line[FROM] !== wantedLane) return false;
    if (!wanted) return true;
    return line[TEXT].toLowerCase().includes(wanted) || lanes[line[LANE]].title.toLowerCase().includes(wanted);
  }
  function refilter() {
    const top = rows[Math.floor(scroll.scrollTop / ROW)] ?? 0;
    rows = [];
    lines.forEach((line, index) => { if (keeps(line, index)) rows.push(index); });
    byId("count").textContent = `${rows.length} of ${lines.length} steps`;
    byId("tall").style.height = `${rows.length * ROW + 60}px`;
    arrows = null;
    scroll.scrollTop = rowOf(top) * ROW;
    drawSteps();
  }
  // The row of a line, or of the next one that is shown.
  const rowOf = (line) => lowerBound(rows.length, (row) => rows[row], line);
  const rowAt = (time) => rowOf(lineAt(time));

  // Everything that reaches over several rows, worked out once a filter.
  let arrows = null;
  function spread() {
    arrows = { messages: [], bars: [], lives: [] };
    lines.forEach((line, index) => {
      const kind = kindOf(line);
      if (kind === "answer" && line[TEXT].startsWith("upload ") && line[SINCE] >= 0) {
        arrows.bars.push({ lane: line[LANE], from: rowAt(line[SINCE]), until: rowOf(index), color: COLORS.upload,
          title: line[TEXT], offset: 4 });
      } else if (kind === "pause") {
        const until = Math.min(rowAt(line[UNTIL]), rowOf(lanes[line[LANE]].last_line));
        arrows.bars.push({ lane: line[LANE], from: rowOf(index), until, color: COLORS.pause, title: line[TEXT], offset: -6, wide: 12 });
      }
    });
    rows.forEach((index, row) => {
      const line = lines[index];
      const kind = kindOf(line);
      if (line[FROM] < 0 || !["message", "barrier", "store", "answer", "fault"].includes(kind)) return;
      const from = line[SINCE] >= 0 ? Math.min(row, rowAt(line[SINCE])) : row;
      arrows.messages.push({ from, until: row, line, kind });
    });
    lanes.forEach((lane, index) => {
      arrows.lives.push({ lane: index, from: rowOf(lane.first_line), until: rowOf(lane.last_line) });
    });
  }

  function drawSteps() {
    if (!arrows) spread();
    const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - 4);
    const last = Math.min(rows.length - 1, first + Math.ceil(scroll.clientHeight / ROW) + 8);
    const top = first * ROW;
    const height = (last - first + 1) * ROW + 4;
    const width = diagramWidth();
    lanesSvg.replaceChildren();
    drawn = 0;
    lanesSvg.setAttribute("width", width);
    lanesSvg.setAttribute("height", height);
    lanesSvg.style.top = `${top}px`;
    const y = (row) => (row - first + 0.5) * ROW;
    const inView = (one) => one.until >= first - 1 && one.from <= last + 1;
    const limit = (row) => Math.max(first - 2, Math.min(last + 2, row));
    for (const life of arrows.lives) {
      if (!inView(life)) continue;
      const lane = lanes[life.lane];
      shape(lanesSvg, "line", { x1: laneX(life.lane), x2: laneX(life.lane), y1: y(limit(life.from)), y2: y(limit(life.until)),
        stroke: COLORS[lane.kind], "stroke-width": 2, "stroke-opacity": 0.45 }, lane.title);
    }
    for (const one of arrows.bars) {
      if (!inView(one)) continue;
      const barTop = y(limit(one.from));
      shape(lanesSvg, "rect", { x: laneX(one.lane) + one.offset, y: barTop, width: one.wide || 4,
        height: Math.max(4, y(limit(one.until)) - barTop), fill: one.color, "fill-opacity": 0.7, rx: 2 }, one.title);
    }
    for (const one of arrows.messages) if (inView(one)) arrow(one, y);
    for (let row = first; row <= last; row += 1) symbol(lines[rows[row]], y(row), width);
    drawRows(first, last, width);
    drawColumns(first);
    markWindow();
  }
  function arrow(one, y) {
    const { line, kind } = one;
    if (kind === "fault") {
      // On its way from this lane to the other, and something happens to it there.
      const [near, far] = [laneX(line[LANE]), laneX(line[FROM])];
      const there = near + (far - near) * 0.7;
      shape(lanesSvg, "line", { x1: near, y1: y(one.until), x2: there, y2: y(one.until), stroke: COLORS.fault, "stroke-dasharray": "4 3" }, line[TEXT]);
      shape(lanesSvg, "path", { d: `M${there - 4} ${y(one.until) - 4} l8 8 m0 -8 l-8 8`, stroke: COLORS.fault, "stroke-width": 2 }, line[TEXT]);
      return;
    }
    const [x1, x2] = [laneX(line[FROM]), laneX(line[LANE])];
    const [y1, y2] = [y(one.from), y(one.until)];
    const color = kind === "message" ? COLORS.message : kind === "barrier" ? COLORS.barrier : COLORS.answer;
    const title = line[TEXT] + (line[SINCE] >= 0 ? ` (sent ${seconds(line[SINCE])}, ${(line[AT] - line[SINCE]) / 1000} ms before)` : "");
    shape(lanesSvg, "line", { x1, y1, x2, y2, stroke: color, "stroke-width": kind === "barrier" ? 3 : 1.4,
      "stroke-opacity": kind === "message" ? 0.9 : 0.55, "stroke-dasharray": kind === "answer" ? "3 3" : "none" }, title);
    const side = x2 > x1 ? -1 : 1;
    shape(lanesSvg, "path", { d: `M${x2} ${y2} l${side * 7} -3.5 v7 z`, fill: color });
  }
  function symbol(line, y, width) {
    const kind = kindOf(line);
    if (kind === "broken") {
      shape(lanesSvg, "rect", { x: 0, y: y - ROW / 2, width, height: ROW, fill: COLORS.fault });
      shape(lanesSvg, "text", { x: 8, y: y + 4, style: "fill:#fff;font-weight:700", text: `\u2715 ${page.promise}` });
      return;
    }
    const at = laneX(line[LANE]);
    const lane = lanes[line[LANE]];
    const color = COLORS[lane.kind];
    if (kind === "begin") {
      shape(lanesSvg, "rect", { x: at - 28, y: y - 8, width: 56, height: 16, fill: color, rx: 3 }, lane.title);
      shape(lanesSvg, "text", { x: at, y: y + 4, "text-anchor": "middle", style: "fill:#fff", text: shortened(lane.name) });
    } else if (kind === "end") {
      shape(lanesSvg, "path", { d: `M${at - 6} ${y - 6} l12 12 m0 -12 l-12 12`, stroke: COLORS.fault, "stroke-width": 2.5 }, line[TEXT]);
    } else if (kind === "fault") {
      shape(lanesSvg, "path", { d: `M${at + 1} ${y - 9} l-6 10 h5 l-2 8 l8 -11 h-5 z`, fill: COLORS.fault }, line[TEXT]);
      if (line[TEXT] === "everything heals") {
        shape(lanesSvg, "line", { x1: 0, x2: width, y1: y, y2: y, stroke: COLORS.commit, "stroke-dasharray": "6 4" });
      }
    } else if (kind === "commit") {
      shape(lanesSvg, "path", { d: `M${at} ${y - 7} l7 7 l-7 7 l-7 -7 z`, fill: COLORS.commit }, line[TEXT]);
    } else if (kind === "cut") {
      shape(lanesSvg, "rect", { x: at - 9, y: y - 2, width: 18, height: 4, fill: "#000" }, line[TEXT]);
    } else {
      shape(lanesSvg, "circle", { cx: at, cy: y, r: 3, fill: kind === "notice" ? COLORS.message : color }, line[TEXT]);
    }
  }
  function drawRows(first, last, width) {
    const list = byId("rows");
    list.replaceChildren();
    for (let row = first; row <= last; row += 1) {
      const index = rows[row];
      const line = lines[index];
      const kind = kindOf(line);
      const heals = line[TEXT] === "everything heals" ? " heals" : "";
      const element = html("div", { class: `row mono ${kind}${heals}${index === selected ? " selected" : ""}`,
        style: `top:${row * ROW}px;left:${width}px`, title: line[TEXT], onclick: () => { selected = selected === index ? -1 : index; drawSteps(); } });
      let who = line[LANE] >= 0 ? lanes[line[LANE]].name : "";
      if (line[FROM] >= 0) {
        const other = lanes[line[FROM]].name;
        who = kind === "fault" ? `${who} \u2192 ${other}` : `${other} \u2192 ${who}`;
      }
      element.append(html("span", { class: "time" }, (line[AT] / 1e6).toFixed(6)),
        html("span", { class: "who", title: line[LANE] >= 0 ? lanes[line[LANE]].title : "" }, shortened(who)), html("span", { class: "tag" }, kind));
      for (const choice of choicesOf.get(index) || []) {
        element.append(html("span", { class: "choice", title: choice.text }, `\u25c6 ${choice.choices.join(", ")}`));
      }
      element.append(html("span", { class: "text" }, line[TEXT]));
      list.append(element);
    }
  }
  const shortened = (who) => who.replaceAll("coordinator ", "coord ").replaceAll("attempt ", "att ");
  function drawColumns(first) {
    columnsSvg.replaceChildren();
    columnsSvg.setAttribute("width", diagramWidth());
    columnsSvg.setAttribute("height", 30);
    const at = rows[Math.min(first + 4, rows.length - 1)] ?? 0;
    slots.forEach((slot, place) => {
      // Who stands in this column at the top of the view, or comes next.
      const here = slot.lanes.find((index) => lanes[index].last_line >= at) ?? slot.lanes.at(-1);
      const lane = lanes[here];
      const x0 = (place + 0.5) * columnWidth();
      const [name, number] = lane.name.split(" ");
      const narrow = columnWidth() < 84;
      const shown = number === undefined ? name : narrow ? shortened(lane.name) : lane.name;
      shape(columnsSvg, "text", { x: x0, y: 13, "text-anchor": "middle", style: `fill:${COLORS[lane.kind]};font-weight:700`, text: shown }, lane.title);
      const subtask = lane.title.split(", ")[1];
      if (subtask) shape(columnsSvg, "text", { x: x0, y: 26, "text-anchor": "middle", class: "dim", text: narrow ? subtask : `subtask ${subtask}` }, lane.about);
    });
  }
  function markWindow() {
    const mark = byId("window");
    if (!mark || !rows.length) return;
    const first = Math.min(Math.floor(scroll.scrollTop / ROW), rows.length - 1);
    const last = Math.min(first + Math.floor(scroll.clientHeight / ROW), rows.length - 1);
    const left = clamp(x(lines[rows[first]][AT]));
    mark.setAttribute("x", left);
    mark.setAttribute("width", Math.max(2, clamp(x(lines[rows[last]][AT])) - left));
  }
  function goToLine(line) {
    const row = Math.min(rowOf(line), rows.length - 1);
    selected = rows[row] ?? -1;
    scroll.scrollTop = Math.max(0, row * ROW - scroll.clientHeight / 2);
    drawSteps();
  }
  let waiting = false;
  scroll.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; drawSteps(); });
  });
  window.addEventListener("resize", () => { drawOverview(); drawSteps(); });
  drawOverview();
  refilter();
  if (page.promise) {
    goToLine(lines.length - 1);
    selected = -1;
    drawSteps();
  }
})();
