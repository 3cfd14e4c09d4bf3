"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { series, points, events, machines, kinds } = data;
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  const labelOf = Object.fromEntries(kinds.map((kind) => [kind.key, kind.label]));

  // Text comes from names that anybody may have chosen: it only ever becomes text.
  const put = (parent, name, attributes, text) => {
    const isDrawn = parent.namespaceURI === SVG || name === "svg";
    const element = isDrawn ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value !== undefined) element.setAttribute(key, value);
    }
    if (text !== undefined) element.textContent = text;
    parent.appendChild(element);
    return element;
  };

  // ------------------------------------------------------------------------------------------------- words and numbers

  const isLong = data.seconds > 86400;
  const two = (number) => String(number).padStart(2, "0");
  const clock = (seconds, isShort) => {
    const at = new Date(data.start + seconds * 1000);
    const time = two(at.getUTCHours()) + ":" + two(at.getUTCMinutes()) + (isShort ? "" : ":" + two(at.getUTCSeconds()));
    return isLong ? two(at.getUTCMonth() + 1) + "-" + two(at.getUTCDate()) + " " + time : time;
  };
  const elapsed = (seconds) => {
    let left = Math.floor(seconds);
    const parts = [];
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]) {
      const count = Math.floor(left / size);
      left -= count * size;
      if (count > 0) parts.push(count + unit);
    }
    return parts.slice(0, 2).join("") || "0s";
  };
  const counted = (count, thing) => count + " " + thing + (count === 1 ? "" : "s");
  const dollars = (amount) => "$" + (amount >= 100 ? amount.toFixed(0) : amount >= 1 ? amount.toFixed(2) : amount.toFixed(4));
  const seriesName = (one) => one.pool + " " + one.capacityType;

  /** The point that holds at a moment. */
  const pointAt = (seconds) => {
    let low = 0, high = points.at.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (points.at[middle] <= seconds) low = middle; else high = middle - 1;
    }
    return low;
  };
  const spentAt = (seconds) => {
    const at = pointAt(seconds), next = Math.min(at + 1, points.at.length - 1);
    const width = points.at[next] - points.at[at];
    const share = width > 0 ? Math.min(1, Math.max(0, (seconds - points.at[at]) / width)) : 0;
    return points.usd[at] + (points.usd[next] - points.usd[at]) * share;
  };
  const nodesAt = (at) => points.nodes.reduce((sum, counts) => sum + counts[at], 0);
  const told = (seconds) => {
    if (points.at.length === 0) return "Nothing happened.";
    const at = pointAt(seconds);
    const parts = series.map((one, place) => [seriesName(one), points.nodes[place][at]]).filter(([, count]) => count > 0);
    const nodes = nodesAt(at);
    return clock(seconds) + " (after " + elapsed(seconds) + "): " + counted(nodes, "node") +
      (parts.length > 0 ? " (" + parts.map(([name, count]) => name + " " + count).join(", ") + ")" : "") + ", " +
      counted(points.waiting[at], "pod") + " without a node, " + dollars(points.usdPerHour[at]) + " an hour, " +
      dollars(spentAt(seconds)) + " spent";
  };

  // ------------------------------------------------------------------------------------------------- marks of events

  const SHAPES = {
    commit: "M0 -6L6 0L0 6L-6 0Z",
    launch: "M0 -5.5L6 5H-6Z",
    failure: "!M-4.5 -4.5L4.5 4.5M4.5 -4.5L-4.5 4.5",
    interruption: "M1.5 -6.5L-4.5 1H-.5L-1.5 6.5L4.5 -1.5H.5Z",
    lost: "!M5 0A5 5 0 1 1 -5 0A5 5 0 1 1 5 0M-3.5 -3.5L3.5 3.5",
    drift: "M-5 -5H5V5H-5Z",
    consolidation: "M0 5.5L6 -5H-6Z",
    return: "!M5 -4L0 0L5 4M0 -4L-5 0L0 4",
    expiration: "M-5 -5H5L-5 5H5Z",
    "scale-down": "!M-5.5 0H5.5",
    repair: "!M0 -5.5V5.5M-5.5 0H5.5",
    other: "M4.5 0A4.5 4.5 0 1 1 -4.5 0A4.5 4.5 0 1 1 4.5 0",
  };
  const shape = (parent, kind, attributes) => {
    const path = SHAPES[kind] || SHAPES.other;
    const isOpen = path.startsWith("!");
    return put(parent, "path", { ...attributes, d: isOpen ? path.slice(1) : path, class: "k-" + kind + (isOpen ? " open" : "") });
  };
  const glyph = (parent, kind) => {
    const svg = put(parent, "svg", { viewBox: "-8 -8 16 16", class: "glyph", "aria-hidden": "true" });
    shape(svg, kind);
  };

  // ------------------------------------------------------------------------------------------------- the picture

  const STEPS = [1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000];
  const niceStep = (most, ticks, isWhole) => {
    const rough = most / ticks || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough * 0.999) || rough;
    return isWhole ? Math.max(1, Math.round(step)) : step;
  };
  const span = Math.max(data.seconds, 1);
  let cursor = null, chosen = null, view = null;

  const fillOf = (defs, one, place) => {
    const plain = "f" + one.colour;
    if (one.capacityType === "spot") return { class: plain };
    const id = "pattern-" + place;
    const isStriped = one.capacityType === "on-demand";
    const pattern = put(defs, "pattern", { id, width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: isStriped ? "rotate(45)" : undefined });
    put(pattern, "rect", { width: 8, height: 8, class: plain + " pale" });
    if (isStriped) put(pattern, "line", { x1: 0, y1: 0, x2: 0, y2: 8, class: "stripe t" + one.colour });
    else put(pattern, "circle", { cx: 4, cy: 4, r: 2, class: plain });
    return { fill: "url(#" + id + ")" };
  };

  const draw = () => {
    const box = byId("chart");
    const width = Math.max(280, Math.floor(box.clientWidth));
    const isNarrow = width < 560;
    const left = isNarrow ? 46 : 112, right = 12, plot = width - left - right;
    const x = (seconds) => left + (seconds / span) * plot;
    box.textContent = "";
    const svg = put(box, "svg", { "aria-hidden": "true" });
    const defs = put(svg, "defs");
    const grid = put(svg, "g");
    let y = 2;

    const panel = (title, height, most, format, isWhole) => {
      put(svg, "text", { x: 0, y: y + 11, class: "title" }, title);
      const top = y + 20, bottom = top + height;
      const step = niceStep(Math.max(most, isWhole ? 1 : 1e-6), height > 100 ? 5 : 2, isWhole);
      const high = Math.max(step, Math.ceil(most / step - 1e-9) * step);
      const scale = (value) => bottom - (value / high) * height;
      for (let tick = 0; tick <= high + step / 1000; tick += step) {
        put(tick === 0 ? svg : grid, "line", { x1: left, x2: width - right, y1: scale(tick), y2: scale(tick), class: tick === 0 ? "axis" : "grid" });
        put(svg, "text", { x: left - 6, y: scale(tick) + 4, "text-anchor": "end" }, format(tick));
      }
      y = bottom + 18;
      return scale;
    };
    // Each point holds until the next.
    const steps = (values, scale) => {
      let path = "";
      points.at.forEach((at, place) => {
        path += (place === 0 ? "M" : "L") + x(at).toFixed(1) + " " + scale(values[place]).toFixed(1);
        const next = place + 1 < points.at.length ? points.at[place + 1] : data.seconds;
        path += "H" + x(next).toFixed(1);
      });
      return path;
    };
    const back = (values, scale) => {
      let path = "";
      for (let place = points.at.length - 1; place >= 0; place -= 1) {
        const next = place + 1 < points.at.length ? points.at[place + 1] : data.seconds;
        path += "L" + x(next).toFixed(1) + " " + scale(values[place]).toFixed(1) + "H" + x(points.at[place]).toFixed(1);
      }
      return path + "Z";
    };
    const top = (values) => values.reduce((most, value) => Math.max(most, value), 0);

    const totals = points.at.map((_, place) => nodesAt(place));
    const nodes = panel("Nodes, by pool and capacity type", 170, top(totals), String, true);
    let below = points.at.map(() => 0);
    series.forEach((one, place) => {
      const above = below.map((count, at) => count + points.nodes[place][at]);
      if (points.at.length > 0) {
        put(svg, "path", { d: steps(above, nodes) + back(below, nodes), ...fillOf(defs, one, place) });
        // A thin line between two layers; where points are close together it would hide what is thin itself.
        if (place + 1 < series.length && points.at.length < 150) put(svg, "path", { d: steps(above, nodes), class: "edge" });
      }
      below = above;
    });
    const waiting = panel("Pods without a node", 54, top(points.waiting), String, true);
    if (points.at.length > 0) put(svg, "path", { d: steps(points.waiting, waiting) + back(points.at.map(() => 0), waiting), class: "waiting" });
    const cents = (most) => (amount) => "$" + (most >= 20 ? amount.toFixed(0) : most >= 0.5 ? amount.toFixed(2) : amount.toFixed(3));
    const hourly = panel("US dollars an hour", 64, top(points.usdPerHour), cents(top(points.usdPerHour)), false);
    if (points.at.length > 0) put(svg, "path", { d: steps(points.usdPerHour, hourly), class: "money" });
    const sum = panel("US dollars spent so far", 64, top(points.usd), cents(top(points.usd)), false);
    if (points.at.length > 0) {
      const line = points.at.map((at, place) => x(at).toFixed(1) + " " + sum(points.usd[place]).toFixed(1)).join("L");
      put(svg, "path", { d: "M" + line, class: "sum" });
    }

    if (kinds.length > 0) {
      put(svg, "text", { x: 0, y: y + 11, class: "title" }, "What was done");
      y += 18;
    }
    const chosenLine = put(svg, "line", { class: "chosen", visibility: "hidden" });
    const line = put(svg, "line", { class: "cursor", visibility: "hidden" });
    const marks = [];
    kinds.forEach((kind) => {
      const middle = y + 11;
      put(grid, "line", { x1: left, x2: width - right, y1: middle, y2: middle, class: "grid" });
      if (isNarrow) shape(put(svg, "g", { transform: "translate(" + (left - 24) + " " + middle + ")" }), kind.key);
      else put(svg, "text", { x: left - 13, y: middle + 4, "text-anchor": "end" }, kind.label);
      let last = null;
      events.forEach((event, place) => {
        if (event.kind !== kind.key) return;
        const at = x(event.at);
        if (last && at - last.at < 9) {
          last.places.push(place);
          return;
        }
        last = { at, middle, kind: kind.key, places: [place] };
        marks.push(last);
      });
      y += 22;
    });
    marks.forEach((mark) => {
      const group = put(svg, "g", { class: "mark", transform: "translate(" + mark.at.toFixed(1) + " " + mark.middle + ")", "data-event": mark.places[0] });
      put(group, "rect", { x: -8, y: -10, width: 16, height: 20, "fill-opacity": 0 });
      shape(group, mark.kind);
      const first = events[mark.places[0]];
      const count = mark.places.reduce((sum, place) => sum + (events[place].count || 1), 0);
      const title = clock(first.at) + " " + labelOf[mark.kind] + (count > 1 ? ", " + count + " close together" : "");
      put(group, "title", {}, title + ": " + (first.subject ? first.subject + ": " : "") + first.what);
      group.addEventListener("click", () => { location.hash = "e" + mark.places[0]; });
    });

    const bottom = y;
    const step = STEPS.find((step) => (step / span) * plot >= (isLong ? 92 : 64)) || span;
    const offset = (Math.ceil(data.start / 1000 / step) * step) - data.start / 1000;
    for (let at = offset; at <= span; at += step) {
      put(grid, "line", { x1: x(at), x2: x(at), y1: 20, y2: bottom, class: "grid" });
      const anchor = x(at) < left + 20 ? "start" : x(at) > width - right - 24 ? "end" : "middle";
      put(svg, "text", { x: x(at), y: bottom + 14, "text-anchor": anchor }, clock(at, step >= 60));
    }
    const height = bottom + 22;
    svg.setAttribute("viewBox", "0 0 " + width + " " + height);
    svg.setAttribute("height", height);
    for (const one of [chosenLine, line]) {
      one.setAttribute("y1", 20);
      one.setAttribute("y2", bottom);
    }
    view = { svg, x, line, chosenLine, left, plot, width };
    showMoment();
  };

  const showMoment = () => {
    if (!view) return;
    const show = (line, seconds) => {
      line.setAttribute("visibility", seconds === null ? "hidden" : "visible");
      if (seconds !== null) {
        line.setAttribute("x1", view.x(seconds));
        line.setAttribute("x2", view.x(seconds));
      }
    };
    show(view.line, cursor);
    show(view.chosenLine, chosen);
    const seconds = cursor !== null ? cursor : chosen !== null ? chosen : data.seconds;
    const text = told(seconds);
    byId("readout").textContent = text;
    const slider = byId("moment");
    slider.setAttribute("aria-valuenow", Math.round(seconds));
    slider.setAttribute("aria-valuetext", text);
  };

  const startPicture = () => {
    byId("picture").hidden = false;
    byId("moment").setAttribute("aria-valuemax", Math.round(data.seconds));
    const legend = byId("legend");
    series.forEach((one, place) => {
      const item = put(legend, "li");
      const svg = put(item, "svg", { width: 22, height: 14, "aria-hidden": "true" });
      put(svg, "rect", { width: 22, height: 14, rx: 2, ...fillOf(put(svg, "defs"), one, "legend-" + place) });
      put(item, "span", {}, seriesName(one));
    });
    const box = byId("moment");
    box.addEventListener("pointermove", (event) => {
      const rect = view.svg.getBoundingClientRect();
      const at = ((event.clientX - rect.left) / rect.width) * view.width;
      cursor = Math.min(span, Math.max(0, ((at - view.left) / view.plot) * span));
      showMoment();
    });
    box.addEventListener("pointerleave", () => { cursor = null; showMoment(); });
    box.addEventListener("keydown", (event) => {
      const now = cursor !== null ? cursor : chosen !== null ? chosen : data.seconds;
      const at = pointAt(now);
      const to = {
        ArrowLeft: points.at[now > points.at[at] ? at : Math.max(0, at - 1)],
        ArrowRight: points.at[Math.min(points.at.length - 1, at + 1)],
        PageDown: Math.max(0, now - span / 10),
        PageUp: Math.min(data.seconds, now + span / 10),
        Home: 0,
        End: data.seconds,
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      cursor = to;
      showMoment();
    });
    new ResizeObserver(() => { if (!view || Math.floor(byId("chart").clientWidth) !== view.width) draw(); }).observe(byId("chart"));
    draw();
    const numbers = byId("numbers");
    numbers.addEventListener("toggle", () => {
      const box = numbers.querySelector("div");
      if (numbers.open && !box.firstChild) fillNumbers(box);
    });
  };

  const fillNumbers = (box) => {
    const table = put(box, "table");
    const head = put(put(table, "thead"), "tr");
    const names = ["Time", ...series.map(seriesName), "All nodes", "Pods without a node", "$ an hour", "$ spent"];
    names.forEach((name, place) => put(head, "th", { scope: "col", class: place > 0 ? "number" : undefined }, name));
    const body = put(table, "tbody");
    points.at.forEach((at, place) => {
      const row = put(body, "tr");
      put(row, "th", { scope: "row" }, clock(at));
      const cells = [...series.map((_, one) => points.nodes[one][place]), nodesAt(place), points.waiting[place], points.usdPerHour[place], points.usd[place]];
      cells.forEach((cell) => put(row, "td", { class: "number" }, cell));
    });
  };

  // ------------------------------------------------------------------------------------------------- why

  const wide = matchMedia("(min-width: 1000px)");
  const why = byId("why"), home = why.parentElement;

  const listRows = (parent, rows) => {
    const list = put(parent, "dl", { class: "rows" });
    rows.forEach(([word, text]) => { put(list, "dt", {}, word); put(list, "dd", {}, text); });
  };
  const button = (parent, text, act) => put(parent, "button", { type: "button" }, text).addEventListener("click", act);

  const showEvent = (place) => {
    const event = events[place], box = byId("reasons");
    box.textContent = "";
    byId("why-title").textContent = labelOf[event.kind] + (event.count ? ", " + event.count + " times" : "");
    const until = event.until !== undefined ? " to " + clock(event.until) : "";
    put(box, "p", {}, (event.subject ? event.subject + ": " : "") + event.what);
    put(box, "p", { class: "hint" }, clock(event.at) + until + " UTC, after " + elapsed(event.at) + (event.pool ? ", pool " + event.pool : ""));
    if (event.rows) listRows(box, event.rows);
    (event.machines || []).forEach((machine) => {
      const { name, rows } = machines[machine];
      put(put(box, "h3"), "a", { href: "#m" + machine }, name);
      // What the event says already is not said again.
      listRows(box, rows.filter(([word, text]) => !(event.rows || []).some((row) => row[0] === word && row[1] === text)));
    });
    if (event.more) put(box, "p", { class: "hint" }, "And " + counted(event.more, "node") + " more.");
    const steps = put(box, "div", { class: "steps" });
    if (place > 0) button(steps, "Previous", () => { location.hash = "e" + (place - 1); });
    if (place + 1 < events.length) button(steps, "Next", () => { location.hash = "e" + (place + 1); });
    button(steps, "Close", close);
    chosen = event.at;
  };
  const showMachine = (place) => {
    const machine = machines[place], box = byId("reasons");
    box.textContent = "";
    byId("why-title").textContent = "Node " + machine.name;
    listRows(box, machine.rows);
    const own = events.map((event, at) => [event, at]).filter(([event]) => (event.machines || []).includes(place));
    if (own.length > 0) {
      put(box, "h3", {}, "Its events");
      const list = put(box, "ul");
      own.slice(0, 20).forEach(([event, at]) => {
        put(put(list, "li"), "a", { href: "#e" + at }, clock(event.at) + " " + labelOf[event.kind]);
      });
    }
    button(put(box, "div", { class: "steps" }), "Close", close);
    chosen = machine.from;
  };
  function close() {
    const from = location.hash;
    history.pushState(null, "", location.pathname + location.search);
    follow();
    const row = byId("to-" + from.slice(1));
    if (row) row.focus();
  }

  const follow = () => {
    document.querySelectorAll(".is-chosen").forEach((element) => element.classList.remove("is-chosen"));
    document.querySelectorAll('[aria-expanded="true"]').forEach((element) => element.setAttribute("aria-expanded", "false"));
    const asked = /^#([em])(\d+)$/.exec(location.hash);
    const place = asked ? Number(asked[2]) : -1;
    const isEvent = asked !== null && asked[1] === "e" && place < events.length;
    const isMachine = asked !== null && asked[1] === "m" && place < machines.length;
    let row = null;
    if (isEvent) {
      showEvent(place);
      row = rowOfEvent(place);
      if (row) row.firstChild.setAttribute("aria-expanded", "true");
    } else if (isMachine) {
      showMachine(place);
      row = rowOfMachine(place);
    } else {
      chosen = null;
      byId("why-title").textContent = "Why";
      byId("reasons").textContent = "";
      put(byId("reasons"), "p", { class: "hint" }, "Choose an event or a node: here stands by which rule it was done, what else there was, and which commit was in force.");
    }
    if (row) row.classList.add("is-chosen");
    why.hidden = events.length + machines.length === 0 || (!wide.matches && !isEvent && !isMachine);
    // On a narrow page the reasons stand where they were asked for.
    if (wide.matches || !row) home.appendChild(why);
    else if (isEvent) row.appendChild(why);
    else byId("nodes").insertBefore(why, byId("nodes").children[1]);
    if (!wide.matches && row) (isEvent ? row : why).scrollIntoView({ block: "start" });
    else if (row && isEvent) {
      const seen = row.getBoundingClientRect();
      const picture = byId("picture").getBoundingClientRect();
      if ((seen.top < 0 || seen.bottom > innerHeight) && (picture.bottom < 0 || picture.top > innerHeight)) row.scrollIntoView({ block: "nearest" });
    }
    showMoment();
  };

  // ------------------------------------------------------------------------------------------------- lists

  const PAGE = 100;
  const hidden = new Set();
  let words = "", listed = [], drawn = 0;

  const rowOfEvent = (place) => {
    let at = listed.indexOf(place);
    if (at < 0) {
      // It was asked for by name, so no filter may hide it.
      hidden.clear();
      words = "";
      document.querySelectorAll(".filters input").forEach((input) => { if (input.type === "checkbox") input.checked = true; else input.value = ""; });
      filter();
      at = listed.indexOf(place);
    }
    while (drawn <= at) drawMore();
    return byId("list").children[at];
  };
  const drawMore = () => {
    const list = byId("list");
    listed.slice(drawn, drawn + PAGE).forEach((place) => {
      const event = events[place];
      const row = put(list, "li");
      const head = put(row, "button", { type: "button", "aria-expanded": "false", id: "to-e" + place });
      put(head, "span", { class: "at" }, clock(event.at));
      glyph(head, event.kind);
      put(head, "span", {}, labelOf[event.kind]);
      const what = put(head, "span", { class: "what" });
      if (event.subject) { put(what, "b", {}, event.subject); what.append(": "); }
      what.append(event.what + (event.pool && !event.subject ? " (pool " + event.pool + ")" : ""));
      head.addEventListener("click", () => {
        if (location.hash === "#e" + place) close(); else location.hash = "e" + place;
      });
    });
    drawn = Math.min(listed.length, drawn + PAGE);
    byId("more").hidden = drawn >= listed.length;
    const all = listed.length === events.length ? counted(events.length, "event") : listed.length + " of " + counted(events.length, "event");
    byId("shown").textContent = events.length === 0 ? "Nothing was done to any node." : all + (drawn < listed.length ? ", the first " + drawn + " are shown" : "");
  };
  const filter = () => {
    home.appendChild(why);
    byId("list").textContent = "";
    drawn = 0;
    const isWanted = (event) => !hidden.has(event.kind) &&
      (words === "" || [event.subject, event.pool, event.what, labelOf[event.kind]].some((text) => text && text.toLowerCase().includes(words)));
    listed = events.map((_, place) => place).filter((place) => isWanted(events[place]));
    drawMore();
  };

  let rowsOfNodes = 0;
  const rowOfMachine = (place) => {
    while (rowsOfNodes <= place) drawNodes();
    return byId("machines").children[place];
  };
  const drawNodes = () => {
    const body = byId("machines");
    machines.slice(rowsOfNodes, rowsOfNodes + PAGE).forEach((machine, at) => {
      const place = rowsOfNodes + at;
      const row = put(body, "tr");
      put(put(row, "th", { scope: "row" }), "a", { href: "#m" + place, id: "to-m" + place }, machine.name);
      [machine.pool || "-", machine.instanceType, machine.capacityType, machine.zone].forEach((text) => put(row, "td", {}, text));
      put(row, "td", { class: "number" }, machine.usdPerHour);
      put(row, "td", { class: "number" }, machine.from === null ? "-" : clock(machine.from));
      put(row, "td", { class: "number" }, machine.from === null ? "never ran" : machine.to === null ? "still runs" : clock(machine.to));
    });
    rowsOfNodes = Math.min(machines.length, rowsOfNodes + PAGE);
    byId("more-nodes").hidden = rowsOfNodes >= machines.length;
  };

  const startLists = () => {
    byId("events").hidden = false;
    byId("list").classList.toggle("is-long", isLong);
    const filters = document.querySelector(".filters");
    kinds.forEach((kind) => {
      const label = put(filters, "label");
      const box = put(label, "input", { type: "checkbox", checked: "" });
      glyph(label, kind.key);
      put(label, "span", {}, kind.label);
      box.addEventListener("change", () => { if (box.checked) hidden.delete(kind.key); else hidden.add(kind.key); filter(); });
    });
    if (events.length > 0) {
      const search = put(filters, "input", { type: "search", placeholder: "Name, pool or word", "aria-label": "Only events with this name, pool or word" });
      search.addEventListener("input", () => { words = search.value.trim().toLowerCase(); filter(); });
    }
    filter();
    byId("more").addEventListener("click", drawMore);
    byId("nodes").hidden = machines.length === 0;
    byId("more-nodes").addEventListener("click", drawNodes);
    drawNodes();
  };

  startPicture();
  startLists();
  addEventListener("hashchange", follow);
  wide.addEventListener("change", follow);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && location.hash.length > 1) close(); });
  follow();
})();
