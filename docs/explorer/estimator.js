/* The rewards of vcse.estimators for a small cloud, in plain JavaScript: pure functions, no page needed.

   features  one array of d coordinates per point
   values    one number per point
   k         which neighbour, counted without the point itself
   reading   "clean" or "paper", as in docs/readings.md

   tests/docs/test_explorer.py holds every number against the library. */
"use strict";

const vcseEstimator = (() => {
  const READINGS = {
    clean: { nvRadius: "joint" }, // n_v is counted within ε/2
    paper: { nvRadius: "value" }, // n_v is counted within ε_v/2, the neighbour's distance in value
  };
  const VCSE_OFFSET = 1e-5;
  const SE_OFFSET = 1;
  const EULER = 0.5772156649015329;

  /* ψ(n) of a whole number n ≥ 1: 1 + 1/2 + ... + 1/(n − 1) − γ. */
  function digamma(n) {
    let sum = -EULER;
    for (let i = 1; i < n; i++) sum += 1 / i;
    return sum;
  }

  const mean = (numbers) => numbers.reduce((sum, each) => sum + each, 0) / numbers.length;

  /* Mean and standard deviation, the one that divides by n. */
  function moments(numbers) {
    const centre = mean(numbers);
    return { mean: centre, std: Math.sqrt(mean(numbers.map((each) => (each - centre) ** 2))) };
  }

  /* Numbers with mean 0 and standard deviation 1; equal numbers are divided by 1. */
  function standardized(numbers) {
    const { mean: centre, std } = moments(numbers);
    return numbers.map((each) => (each - centre) / (std || 1));
  }

  /* Euclidean. Not Math.hypot, which may round otherwise than the square root of a sum of squares. */
  function distance(a, b) {
    let squares = 0;
    for (let i = 0; i < a.length; i++) squares += (a[i] - b[i]) ** 2;
    return Math.sqrt(squares);
  }

  /* All other points, as seen from one: how far in state, in value, and under the max-norm of the two. */
  function others(features, values, index) {
    return features.flatMap((point, other) => {
      if (other === index) return [];
      const state = distance(features[index], point);
      const value = Math.abs(values[index] - values[other]);
      return [{ index: other, state, value, joint: Math.max(state, value) }];
    });
  }

  /* The rewards of one point, and all that they are made of. */
  function terms(features, values, { k, reading, index }) {
    if (!(k >= 1 && k < features.length)) throw new RangeError(`k=${k} needs at least ${k + 1} points`);
    const all = others(features, values, index);
    // Of several points at the same joint distance, the one farthest in value is the k-th.
    const neighbors = [...all].sort((a, b) => a.joint - b.joint || b.value - a.value).slice(0, k);
    const radius = neighbors[k - 1].joint;
    const kth = neighbors.find((each) => each.joint === radius);
    const countRadius = READINGS[reading].nvRadius === "joint" ? radius : kth.value;
    const counted = all.filter((each) => each.value < countRadius);
    const stateNeighbors = [...all].sort((a, b) => a.state - b.state).slice(0, k);
    const stateRadius = stateNeighbors[k - 1].state;
    return {
      others: all,
      neighbors,
      kth,
      radius, // ε/2
      valueDistance: kth.value, // ε_v/2
      countRadius,
      counted,
      valueCount: counted.length, // n_v
      vcse: digamma(counted.length + 1) / features[0].length + Math.log(2 * radius + VCSE_OFFSET), // Eq. (8)
      stateNeighbors,
      stateRadius, // D/2
      se: Math.log(2 * stateRadius + SE_OFFSET), // Eq. (2)
    };
  }

  const rewards = (features, values, { k, reading }) =>
    features.map((_, index) => terms(features, values, { k, reading, index }));

  /* What a bonus's diagnostics() calls the same. */
  function diagnostics(batch) {
    const decidedByValue = (each) => each.radius > 0 && each.valueDistance === each.radius;
    return {
      value_count_mean: mean(batch.map((each) => each.valueCount)),
      decided_by_value_share: mean(batch.map((each) => (decidedByValue(each) ? 1 : 0))),
      zero_radius_share: mean(batch.map((each) => (each.radius === 0 ? 1 : 0))),
    };
  }

  return { READINGS, VCSE_OFFSET, SE_OFFSET, digamma, mean, moments, standardized, rewards, diagnostics };
})();
