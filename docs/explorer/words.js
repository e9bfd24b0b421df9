/* All that the page says: its controls, what it tells of the selected point, what it tells of the batch. */
"use strict";

const vcseWords = (() => {
  const { READINGS, VCSE_OFFSET, SE_OFFSET, digamma, mean, standardized, diagnostics } = vcseEstimator;
  const { CLOUDS, EXPERIMENTS } = vcseClouds;
  const N_V = "<var>n<sub>v</sub></var>";
  const EPSILON_V = "<var>ε<sub>v</sub></var>";

  /* ---- numbers ---- */

  const fixed = (number, digits = 2) => {
    const text = number.toFixed(digits);
    return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
  };
  /* A distance, with enough digits to tell it from 0. */
  const digits = (number) => (number < 0.01 ? 4 : number < 0.1 ? 3 : number < 10 ? 2 : 1);
  const size = (number) => (number === 0 ? "0" : fixed(number, digits(number)));
  const signed = (number) => (number < 0 ? `− ${fixed(-number)}` : `+ ${fixed(number)}`);
  const ordinal = (n) => `${n}${(n % 100 > 10 && n % 100 < 14 ? "" : { 1: "st", 2: "nd", 3: "rd" }[n % 10]) || "th"}`;
  const formula = (html) => `<span class="formula">${html}</span>`; // on one line
  const symbols = (text) => {
    return text.replaceAll("n_v", N_V).replaceAll("ε_v", EPSILON_V).replaceAll("N − 1", formula("N − 1"));
  };

  /* ---- controls and frames ---- */

  const radios = (name, legend, options) => `
    <fieldset class="switch"><legend>${legend}</legend><div>${options
      .map(([value, text]) => `<label><input type="radio" name="${name}" value="${value}"><span>${text}</span></label>`)
      .join("")}</div></fieldset>`;
  const slider = (name, text, low, high, step = 1) => `
    <label class="slider"><span>${text}</span><output data-of="${name}"></output>
      <input type="range" name="${name}" min="${low}" max="${high}" step="${step}"></label>`;
  const plot = (name, label) => `
    <figure data-plot="${name}"><figcaption></figcaption>
      <svg tabindex="0" role="application" aria-label="${label}">
        <g class="back"></g><g class="points"></g><g class="front"></g></svg>
    </figure>`;
  const experiment = ({ name }, i) => {
    return `<button type="button" data-try="${i}" aria-pressed="false">${symbols(name)}</button>`;
  };
  const MARKUP = `
    <form>
      <div class="bar">
        ${radios("cloud", "Cloud", Object.entries(CLOUDS).map(([key, { name }]) => [key, name]))}
        ${radios("show", "Size of a point", [["vcse", "VCSE"], ["se", "SE"], ["both", "side by side"]])}
        ${radios("reading", "Reading", Object.keys(READINGS).map((key) => [key, key]))}
      </div>
      <div class="bar">
        ${slider("k", "k, which neighbour", 1, 15)}
        ${slider("count", "N, states", 20, 200)}
        ${slider("scale", "features times", -1, 1.475, 0.025)}
        <label class="check"><input type="checkbox" name="standardize"> standardise the values</label>
        <span class="buttons"><button type="button" data-do="sample">New sample</button>
          <button type="button" data-do="reset">Reset</button></span>
      </div>
    </form>
    <div class="views">
      <div class="clouds">
        ${plot("vcse", "States, sized by VCSE. Arrow keys choose a point; with Shift they move it.")}
        ${plot("se", "States, sized by SE. Arrow keys choose a point; with Shift they move it.")}
        ${plot("strip", "Values. Up and down choose a point; with Shift they change its value.")}
        <p class="key"></p>
      </div>
      <div class="side">
        ${plot("pairs", "All others by their distances from the selected point. Arrow keys choose a point.")}
        <section class="told" aria-live="polite"></section>
      </div>
    </div>
    <section class="try"><h3>Four things to try</h3>
      <div>${EXPERIMENTS.map(experiment).join("")}</div>
      <p class="see" aria-live="polite" hidden></p>
    </section>
    <section class="batch"></section>`;

  const key = ({ show }) =>
    show === "se"
      ? "Linked: the k nearest in state. SE does not look at the value."
      : "Linked: the k nearest of the selected point, within ε/2 in state <em>and</em> in value. " +
        `Faint: not counted in ${N_V}.`;

  /* ---- the selected point ---- */

  function tell({ points, features, values, batch }, { select, k, reading, standardize }) {
    const now = batch[select];
    const { state, value } = now.kth;
    const larger = value > state ? "The larger, that in value, gives" : "The larger, that in state, gives";
    const decided = state === value ? "Both are equal, and give" : larger;
    const within = reading === "clean" ? `ε/2 = ${size(now.radius)}` : `${EPSILON_V}/2 = ${size(now.valueDistance)}`;
    const scaled = standardize ? `, standardised ${fixed(values[select])}` : "";
    const place = features[select].map((each) => fixed(each)).join(", ");
    return `<h3>State ${select + 1} of ${points.length}</h3>
      <p>At (${place}), with the value ${fixed(points[select].value)}${scaled}.</p>
      <p>Its ${ordinal(k)} neighbour, ringed among the distances, is ${size(state)} away in state and ${size(value)} in
        value.
        ${decided} ${formula(`ε/2 = ${size(now.radius)}`)}.</p>
      <p>Of the ${points.length - 1} others, ${now.valueCount} ${now.valueCount === 1 ? "is" : "are"} less than
        ${formula(within)} away in
        value: ${formula(`${N_V} = ${now.valueCount}`)}.</p>
      ${formulas(now, features[0].length)}`;
  }

  function formulas(now, d) {
    const epsilon = 2 * now.radius;
    const term = digamma(now.valueCount + 1) / d;
    const small = `(${epsilon === 0 ? 0 : epsilon.toFixed(5)} + ${VCSE_OFFSET.toFixed(5)})`; // where the offset shows
    const inside = epsilon < 0.01 ? small : size(epsilon);
    return `<dl>
      <div><dt>VCSE</dt><dd>ψ(${N_V} + 1)/<var>d</var> + log ε
        <br>= ψ(${now.valueCount + 1})/${d} + log ${inside}
        <br>= ${fixed(term)} ${signed(Math.log(epsilon + VCSE_OFFSET))} = <b>${fixed(now.vcse)}</b></dd></div>
      <div><dt>SE</dt><dd>log(<var>D</var> + 1), in state alone
        <br>= log(${size(2 * now.stateRadius)} + ${SE_OFFSET}) = <b>${fixed(now.se)}</b></dd></div>
    </dl>`;
  }

  /* ---- the batch ---- */

  function tellBatch(computed, { cloud, reading }) {
    const { value_count_mean: counted, decided_by_value_share: decided } = diagnostics(computed.batch);
    const most = computed.points.length - 1;
    const meter = (name, share, text) => `<p class="numbers"><code>${name}</code> ${text}
      <span class="meter"><span style="width: ${(100 * share).toFixed(1)}%"></span></span></p>`;
    const alarm = decided < 0.02 && counted > 0.9 * most;
    return `<div><h3>Does the value matter?</h3>
        ${meter("value_count_mean", counted / most, `<b>${fixed(counted, 1)}</b> of ${most}`)}
        ${meter("decided_by_value_share", decided, `<b>${fixed(100 * decided, 0)} %</b>`)}
        <p class="${alarm ? "alarm" : "calm"}" role="status">${symbols(verdict(alarm, decided, reading))}</p></div>
      <div><h3>Who is paid?</h3>${groupTable(computed, CLOUDS[cloud].groups)}
        <p class="calm">${symbols(CLOUDS[cloud].about)}</p></div>`;
  }

  function verdict(alarm, decided, reading) {
    if (alarm) return "The value decides nothing: n_v is near N − 1 everywhere. Scale the features down.";
    if (decided >= 0.02) return "It does. The alarm would be the first near N − 1 and the second near 0.";
    return reading === "clean"
      ? "It chooses no neighbour, but n_v still tells common values from rare ones."
      : "It chooses no neighbour, and n_v is counted within the distance in value that the k-th happens to have.";
  }

  function groupTable({ points, batch }, names) {
    const pay = { vcse: standardized(batch.map((each) => each.vcse)), se: standardized(batch.map((each) => each.se)) };
    const rows = names.map((name, group) => {
      const cell = (kind) => pay[kind].filter((_, i) => points[i].group === group);
      const average = (members) => (members.length ? fixed(mean(members)) : "–");
      const [vcse, se] = [cell("vcse"), cell("se")];
      const cells = [vcse.length, average(vcse), average(se)].map((each) => `<td>${each}</td>`);
      return `<tr><th scope="row">${name}</th>${cells.join("")}</tr>`;
    });
    return `<table><caption>Mean bonus, in standard deviations above that of the batch</caption>
      <thead><tr><th></th><th scope="col">states</th><th scope="col">VCSE</th><th scope="col">SE</th></tr></thead>
      <tbody>${rows.join("")}</tbody></table>`;
  }

  return { MARKUP, fixed, size, symbols, key, tell, tellBatch };
})();
