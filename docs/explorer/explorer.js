/* The page: draws a cloud and what the estimator makes of it into every <div class="vcse-explorer">.

   All that can be chosen is one object of settings, which the address keeps (#cloud=grid&k=3), so that a view can be
   sent to somebody. Any change goes one way: settings, cloud, rewards, drawing. */
"use strict";

(() => {
  const { READINGS, moments, standardized, rewards } = vcseEstimator;
  const { CLOUDS, EXPERIMENTS, makeCloud } = vcseClouds;
  const { MARKUP, fixed, size, symbols, key, tell, tellBatch } = vcseWords;
  const DEFAULTS = {
    cloud: "room", seed: 4, count: 100, k: 5, scale: 1, reading: "clean", standardize: true, show: "vcse", select: 4,
    moved: {}, // [x, y, value] of the points that were moved, by their index
  };
  const RANGES = { seed: [1, 1e6], count: [20, 200], k: [1, 15], select: [0, 199], scale: [0.1, 30] };
  const REACH = 24; // pixels from a point at which it is meant
  const BOUND = 2; // states lie in [-2, 2]²
  const SPAN = 2 * BOUND + 0.3; // and are drawn with a margin
  const STRIP_MARGIN = 14; // pixels

  const clamp = (number, low, high) => Math.min(high, Math.max(low, number));

  /* ---- settings and the address ---- */

  function fromAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    const settings = structuredClone(DEFAULTS);
    const choices = { cloud: Object.keys(CLOUDS), reading: Object.keys(READINGS), show: ["vcse", "se", "both"] };
    for (const [name, known] of Object.entries(choices)) {
      if (known.includes(given.get(name))) settings[name] = given.get(name);
    }
    for (const [name, range] of Object.entries(RANGES)) {
      const number = name === "scale" ? Number(given.get(name)) : Math.round(given.get(name));
      if (given.has(name) && Number.isFinite(number)) settings[name] = clamp(number, ...range);
    }
    settings.standardize = given.get("standardize") !== "false";
    for (const each of (given.get("moved") ?? "").split(" ")) {
      const [index, ...place] = each.split("_").map(Number);
      if (place.length === 3 && place.every(Number.isFinite)) settings.moved[index] = place;
    }
    return settings;
  }

  function toAddress(settings) {
    const shown = new URLSearchParams();
    for (const [name, chosen] of Object.entries(settings)) {
      if (name !== "moved" && chosen !== DEFAULTS[name]) shown.set(name, chosen);
    }
    const moved = Object.entries(settings.moved).map(([index, place]) => [index, ...place].join("_"));
    if (moved.length) shown.set("moved", moved.join(" "));
    history.replaceState(null, "", `#${shown}`);
  }

  /* ---- what is computed ---- */

  function compute(settings) {
    const points = makeCloud(settings.cloud, settings);
    for (const [index, [x, y, value]] of Object.entries(settings.moved)) {
      if (points[index]) Object.assign(points[index], { x, y, value });
    }
    const raw = points.map((point) => point.value);
    const features = points.map((point) => [point.x * settings.scale, point.y * settings.scale]);
    const values = settings.standardize ? standardized(raw) : raw;
    const unit = settings.standardize ? moments(raw).std || 1 : 1; // of a distance in value, on the strip
    return { points, features, values, unit, batch: rewards(features, values, settings), heaps: inHeaps(points) };
  }

  /* How many points before it lie where a point does, so that a heap can be drawn as one. */
  function inHeaps(points) {
    const seen = new Map();
    return points.map(({ x, y }) => {
      const place = `${x} ${y}`;
      seen.set(place, (seen.get(place) ?? -1) + 1);
      return seen.get(place);
    });
  }

  const indices = (entries) => new Set(entries.map((each) => each.index));
  const color = (value) => `color-mix(in oklch, var(--high) ${(100 * value).toFixed(1)}%, var(--low))`;

  class Explorer {
    constructor(root) {
      this.root = root;
      root.innerHTML = MARKUP;
      this.form = root.querySelector("form");
      const figures = [...root.querySelectorAll("[data-plot]")];
      this.figures = Object.fromEntries(figures.map((each) => [each.dataset.plot, each]));
      this.places = {}; // where each plot has drawn its points, for the pointer and the arrow keys
      this.settings = fromAddress();
      this.form.addEventListener("input", (event) => this.onInput(event));
      this.form.addEventListener("change", () => toAddress(this.settings));
      this.form.addEventListener("submit", (event) => event.preventDefault());
      root.addEventListener("click", ({ target }) => this.onButton(target.closest("button")));
      for (const name of Object.keys(this.figures)) this.listen(name);
      addEventListener("hashchange", () => {
        this.settings = fromAddress();
        this.refresh();
      });
      this.refresh();
      this.watchWidth();
    }

    /* ---- drawing ---- */

    refresh() {
      const { settings, root, figures } = this;
      settings.select = clamp(settings.select, 0, settings.count - 1);
      this.computed = compute(settings);
      this.now = this.computed.batch[settings.select];
      this.fillForm();
      figures.vcse.hidden = settings.show === "se";
      figures.se.hidden = settings.show === "vcse";
      root.querySelector(".views").dataset.show = settings.show;
      for (const kind of ["vcse", "se"]) if (!figures[kind].hidden) this.drawStates(kind);
      this.drawStrip();
      this.drawPairs();
      root.querySelector(".key").innerHTML = key(settings);
      root.querySelector(".told").innerHTML = tell(this.computed, settings);
      root.querySelector(".batch").innerHTML = tellBatch(this.computed, settings);
    }

    fillForm() {
      const { elements } = this.form;
      const { scale, standardize, ...others } = this.settings;
      elements.scale.value = Math.log10(scale);
      elements.standardize.checked = standardize;
      for (const name of ["cloud", "show", "reading", "k", "count"]) elements[name].value = others[name];
      for (const output of this.form.querySelectorAll("output")) {
        output.textContent = output.dataset.of === "scale" ? scale.toPrecision(2) : others[output.dataset.of];
      }
    }

    /* Let a plot count in the pixels that it has, and say how many these are. */
    stage(name) {
      const svg = this.figures[name].querySelector("svg");
      const [width, height] = [Math.max(60, svg.clientWidth), Math.max(60, svg.clientHeight)];
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      return { width, height };
    }

    /* Put a caption, what lies behind the points, the points, and what lies before them into a plot. */
    fill(name, { caption, back, circles, front }) {
      const figure = this.figures[name];
      const group = figure.querySelector(".points");
      figure.querySelector("figcaption").innerHTML = caption;
      figure.querySelector(".back").innerHTML = back;
      figure.querySelector(".front").innerHTML = front;
      while (group.childElementCount > circles.length) group.lastChild.remove();
      while (group.childElementCount < circles.length) {
        group.append(document.createElementNS(group.namespaceURI, "circle"));
      }
      circles.forEach(({ x, y, r, look, index }, i) => {
        const place = `cx: ${x.toFixed(1)}px; cy: ${y.toFixed(1)}px; r: ${r.toFixed(1)}px`;
        const circle = group.children[i]; // one that was there moves to its new place
        circle.setAttribute("class", index === this.settings.select ? "selected" : look);
        circle.setAttribute("style", `${place}; fill: ${color(this.computed.points[index].value)}`);
      });
      this.places[name] = circles;
    }

    drawStates(kind) {
      const { settings, now } = this;
      const { points, batch, heaps } = this.computed;
      const { width } = this.stage(kind);
      const pixels = width / SPAN;
      const across = (x) => (x + SPAN / 2) * pixels;
      const down = (y) => width - across(y);
      const pay = batch.map((each) => each[kind]);
      const [low, high] = [Math.min(...pay), Math.max(...pay)];
      const largest = clamp(width / 45, 6.5, 10);
      const sized = (each) => Math.sqrt(6 + (high > low ? (each - low) / (high - low) : 0.5) * (largest ** 2 - 6));
      const [near, radius] = kind === "vcse" ? [now.neighbors, now.radius] : [now.stateNeighbors, now.stateRadius];
      const looks = this.looks(near, kind === "se" ? now.others : now.counted);
      const circles = points.map((point, index) => {
        const [turn, away] = [2.4 * heaps[index], 3.2 * Math.sqrt(heaps[index])]; // equal ones in a spiral
        const [x, y] = [across(point.x) + away * Math.cos(turn), down(point.y) + away * Math.sin(turn)];
        return { x, y, index, r: sized(pay[index]), look: looks(index) };
      });
      const { x, y } = circles[settings.select];
      const walls = (CLOUDS[settings.cloud].walls ?? []).map((wall) => {
        return rect("wall", across(wall.x), down(wall.y + wall.height), wall.width * pixels, wall.height * pixels);
      });
      const ticks = [-BOUND, 0, BOUND].map((at) => label(across(at), width - 5, symbolic(at * settings.scale)));
      const links = near.map(({ index }) => {
        return `<path class="link" d="M${x} ${y}L${circles[index].x} ${circles[index].y}"/>`;
      });
      this.fill(kind, {
        caption: `<b>States</b>, sized by ${kind.toUpperCase()}:
          <i class="small"></i> ${fixed(low)} to <i class="large"></i> ${fixed(high)}`,
        back: [...walls, ...ticks, ring("ball", x, y, (radius / settings.scale) * pixels), ...links].join(""),
        circles,
        front: ring("ring", x, y, largest + 4),
      });
    }

    looks(near, counted) {
      const [linked, shown] = [indices(near), indices(counted)];
      return (index) => (linked.has(index) ? "near" : shown.has(index) ? "" : "faint");
    }

    drawStrip() {
      const { settings, now } = this;
      const { points, unit } = this.computed;
      const { width, height } = this.stage("strip");
      const tall = height - 2 * STRIP_MARGIN;
      const down = (value) => height - STRIP_MARGIN - value * tall;
      const aware = settings.show !== "se";
      const looks = aware ? this.looks(now.neighbors, now.counted) : () => "";
      const circles = points.map(({ value }, index) => {
        return { x: 22 + (width - 32) * ((index * 0.618034) % 1), y: down(value), index, r: 4.5, look: looks(index) };
      });
      const { x, y } = circles[settings.select];
      const reach = now.countRadius * unit * tall;
      const [top, bottom] = [Math.max(-1, y - reach), Math.min(height + 1, y + reach)];
      const scale = Array.from({ length: 40 }, (_, i) => {
        return `<g style="fill: ${color((i + 0.5) / 40)}">${rect("", 0, down((i + 1) / 40), 7, tall / 40 + 0.6)}</g>`;
      });
      const interval = rect("interval", 10, top, width - 10, Math.max(1.5, bottom - top));
      this.fill("strip", {
        caption: "<b>Values</b>",
        back: (aware ? interval : "") + scale.join(""),
        circles,
        front: ring("ring", x, y, 8.5),
      });
    }

    /* All others by distance in state and in value: the ball of the max-norm is a square, n_v a band below a line. */
    drawPairs() {
      const { now } = this;
      const { width } = this.stage("pairs");
      const far = now.radius > 0 ? 3 * now.radius : Math.max(...now.others.map((each) => each.joint)) || 1;
      const [left, top] = [26, 8];
      const side = width - left - top;
      const along = (distance) => Math.min(distance / far, 1) * side;
      const x = (distance) => left + along(distance);
      const y = (distance) => top + side - along(distance);
      const looks = this.looks(now.neighbors, now.counted);
      this.fill("pairs", {
        caption: "<b>Distances</b> of all others from the selected one",
        back: [
          rect("interval", left, y(now.countRadius), side, along(now.countRadius)),
          rect("ball", left, y(now.radius), along(now.radius), along(now.radius)),
          `<path class="axis" d="M${left} ${top}V${top + side}H${left + side}"/>`,
          label(Math.max(x(now.radius), left + 28), width - 5, `ε/2 = ${size(now.radius)}`),
          label(left + side, width - 5, "in state", "end"),
          `<g transform="translate(${left - 10} ${top}) rotate(-90)">${label(0, 0, "in value", "end")}</g>`,
        ].join(""),
        circles: now.others.map(({ index, state, value }) => {
          return { x: x(state), y: y(value), index, r: 4, look: looks(index) };
        }),
        front: ring("ring", x(now.kth.state), y(now.kth.value), 7),
      });
    }

    /* A new width moves every point at once, and not as if something had happened to it. */
    watchWidth() {
      let known = this.root.clientWidth;
      new ResizeObserver(() => {
        if (this.root.clientWidth === known) return;
        known = this.root.clientWidth;
        requestAnimationFrame(() => {
          this.root.classList.add("still");
          this.refresh();
          requestAnimationFrame(() => this.root.classList.remove("still"));
        });
      }).observe(this.root);
    }

    /* ---- what the reader does ---- */

    change(changes) {
      Object.assign(this.settings, changes);
      this.refresh();
    }

    onInput({ target: { name, type, value, checked } }) {
      if (type === "checkbox") this.change({ [name]: checked });
      else if (name === "cloud") this.change({ cloud: value, moved: {}, select: DEFAULTS.select });
      else if (name === "scale") this.change({ scale: Number((10 ** value).toPrecision(3)) });
      else this.change({ [name]: type === "range" ? Number(value) : value });
    }

    onButton(button) {
      if (!button) return;
      const experiment = EXPERIMENTS[button.dataset.try];
      if (button.dataset.do === "sample") this.change({ seed: this.settings.seed + 1, moved: {} });
      else this.change(structuredClone({ ...DEFAULTS, ...experiment?.settings }));
      toAddress(this.settings);
      for (const each of this.root.querySelectorAll("[data-try]")) each.setAttribute("aria-pressed", each === button);
      const see = this.root.querySelector(".see");
      see.hidden = !experiment;
      see.innerHTML = experiment ? symbols(experiment.see) : "";
    }

    move(index, { x, y, value }) {
      const point = this.computed.points[index];
      const state = [x ?? point.x, y ?? point.y].map((each) => clamp(each, -BOUND, BOUND));
      const place = [...state, clamp(value ?? point.value, 0, 1)].map((each) => Number(each.toFixed(4)));
      this.change({ moved: { ...this.settings.moved, [index]: place } });
    }

    /* The point that is meant by a place in a plot, if there is one near. */
    spotAt(name, x, y) {
      const away = (spot) => Math.hypot(spot.x - x, spot.y - y);
      const spot = this.places[name].reduce((best, each) => (away(each) < away(best) ? each : best));
      return away(spot) <= REACH ? spot : null;
    }

    listen(name) {
      const svg = this.figures[name].querySelector("svg");
      let held = null; // the point under the pointer, and how far from its middle it was taken
      svg.addEventListener("pointerdown", (event) => {
        const [x, y] = pointerOn(svg, event);
        const spot = this.spotAt(name, x, y);
        if (!spot) return;
        held = { index: spot.index, dx: spot.x - x, dy: spot.y - y, x, y, moves: false };
        svg.setPointerCapture(event.pointerId);
        this.change({ select: spot.index });
      });
      const keepFromScrolling = (event) => {
        if (name !== "pairs" && this.spotAt(name, ...pointerOn(svg, event.touches[0]))) event.preventDefault();
      };
      svg.addEventListener("touchstart", keepFromScrolling, { passive: false });
      svg.addEventListener("pointermove", (event) => {
        if (!held || name === "pairs") return;
        const [x, y] = pointerOn(svg, event);
        held.moves ||= Math.hypot(x - held.x, y - held.y) > 4; // before that it may be a click
        if (!held.moves) return;
        this.root.classList.add("still");
        const to = [x + held.dx, y + held.dy];
        if (name === "strip") this.move(held.index, { value: onStrip(svg, to[1]) });
        else this.move(held.index, { x: onPlane(svg, to[0]), y: -onPlane(svg, to[1]) });
      });
      for (const end of ["pointerup", "pointercancel"]) {
        svg.addEventListener(end, () => {
          if (held) toAddress(this.settings);
          held = null;
          this.root.classList.remove("still");
        });
      }
      svg.addEventListener("keydown", (event) => this.onKey(name, event));
      svg.addEventListener("keyup", () => toAddress(this.settings));
    }

    onKey(name, event) {
      const toward = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (!toward || (name === "strip" && toward[0])) return;
      event.preventDefault();
      const [dx, dy] = toward;
      const { x, y, value } = this.computed.points[this.settings.select];
      if (!event.shiftKey || name === "pairs") this.change({ select: this.next(name, dx, -dy) });
      else if (name === "strip") this.move(this.settings.select, { value: value + 0.02 * dy });
      else this.move(this.settings.select, { x: x + 0.1 * dx, y: y + 0.1 * dy });
    }

    /* The point that comes next in a direction on the screen: far aside is worse than far ahead. Of a heap, each in
       turn. Among the distances, the selected point lies in the corner. */
    next(name, dx, dy) {
      const { select } = this.settings;
      const { height } = this.figures[name].querySelector("svg").viewBox.baseVal;
      const from = this.places[name].find((each) => each.index === select) ?? { x: 0, y: height };
      const cost = ({ x, y, index }) => {
        const ahead = (x - from.x) * dx + (y - from.y) * dy;
        const aside = Math.abs((x - from.x) * dy) + Math.abs((y - from.y) * dx);
        const isLater = ahead > 0 || (ahead === 0 && index > select);
        return index === select || !isLater ? Infinity : ahead + (name === "strip" ? 0 : 2 * aside);
      };
      const best = this.places[name].reduce((a, b) => (cost(b) < cost(a) ? b : a));
      return cost(best) < Infinity ? best.index : select;
    }
  }

  const symbolic = (number) => String(Number(number.toPrecision(3))).replace("-", "−");
  const rect = (look, x, y, width, height) => {
    return `<rect class="${look}" x="${x}" y="${y}" width="${width}" height="${height}"/>`;
  };
  const ring = (look, x, y, r) => `<circle class="${look}" cx="${x}" cy="${y}" r="${r}"/>`;
  const label = (x, y, text, look = "") => `<text class="${look}" x="${x}" y="${y}">${text}</text>`;
  const onStrip = (svg, pixels) => 1 - (pixels - STRIP_MARGIN) / (svg.clientHeight - 2 * STRIP_MARGIN);
  const onPlane = (svg, pixels) => (pixels / svg.clientWidth) * SPAN - SPAN / 2;

  function pointerOn(svg, { clientX, clientY }) {
    const { left, top } = svg.getBoundingClientRect();
    return [clientX - left - svg.clientLeft, clientY - top - svg.clientTop];
  }

  for (const root of document.querySelectorAll(".vcse-explorer")) new Explorer(root);
})();
