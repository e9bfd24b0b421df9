/* The clouds that the page begins with, and the experiments that it proposes.

   States lie in [-2, 2]², values in [0, 1]. */
"use strict";

const vcseClouds = (() => {
  /* Uniform numbers between 0 and 1, by xorshift: the same for the same seed in every browser. */
  function generator(seed) {
    let bits = (seed * 2654435761) | 1;
    const uniform = () => {
      bits ^= bits << 13;
      bits ^= bits >>> 17;
      bits ^= bits << 5;
      return (bits >>> 0) / 2 ** 32;
    };
    for (let i = 0; i < 8; i++) uniform(); // or seeds that are alike would begin alike
    const between = (low, high) => low + (high - low) * uniform();
    const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
    return { uniform, between, normal };
  }

  const CLOUDS = {
    room: {
      name: "room and corridor",
      about:
        "A wide room of low value beside a narrow corridor, along which the value rises. Most states share the " +
        "value of the room, so that n_v is large there: where the room is wide, VCSE pays it even more than SE " +
        "does.",
      groups: ["room", "corridor"],
      walls: [
        { x: -1.9, y: -1.9, width: 2.8, height: 3.8 },
        { x: 1.25, y: -1.9, width: 0.5, height: 3.8 },
      ],
      point({ uniform, between, normal }) {
        if (uniform() < 0.7) return [between(-1.85, 0.85), between(-1.85, 1.85), 0.12 + 0.03 * normal(), 0];
        const along = uniform();
        return [between(1.3, 1.7), -1.85 + 3.7 * along, 0.3 + 0.6 * along + 0.02 * normal(), 1];
      },
    },
    clusters: {
      name: "two clusters",
      about:
        "Two clusters of one shape: few states of low value, many of high value. SE pays the few, to turn back; " +
        "VCSE, which asks how rare a state is among those of its value, pays both about alike.",
      groups: ["low value", "high value"],
      point({ uniform, normal }) {
        const high = uniform() < 0.8 ? 1 : 0;
        return [(high ? 1 : -1) + 0.3 * normal(), 0.45 * normal(), (high ? 0.75 : 0.25) + 0.04 * normal(), high];
      },
    },
    blob: {
      name: "one blob",
      about:
        "A normal distribution; the value grows from left to right. SE pays the rim alike all around. VCSE pays " +
        "it above and below, where a state is far from others of its value; left and right few states share the value.",
      groups: ["middle", "left and right", "above and below"],
      point({ normal }) {
        const [x, y] = [0.8 * normal(), 0.8 * normal()];
        const group = Math.hypot(x, y) < 0.94 ? 0 : Math.abs(x) > Math.abs(y) ? 1 : 2;
        return [x, y, 0.5 + 0.17 * x + 0.04 * normal(), group];
      },
    },
    grid: {
      name: "duplicates",
      about:
        "A grid world with its goal in the upper right corner: states of a batch that are equal lie in one heap and " +
        "share one value. Of a heap of more than k, each earns the same, which is hardly anything but log 0.00001.",
      groups: ["near the start", "far from it"],
      point({ uniform }) {
        const [column, row] = [Math.floor(5 * uniform() ** 2), Math.floor(5 * uniform() ** 2)];
        const steps = 8 - column - row; // to the goal, in the upper right corner
        return [0.75 * column - 1.5, 0.75 * row - 1.5, 0.8 ** steps, steps > 4 ? 0 : 1];
      },
    },
  };

  function makeCloud(name, { count, seed }) {
    const random = generator(seed);
    return Array.from({ length: count }, () => {
      const [x, y, value, group] = CLOUDS[name].point(random);
      const within = (number, low, high) => Math.min(high, Math.max(low, number));
      return { x: within(x, -2, 2), y: within(y, -2, 2), value: within(value, 0, 1), group };
    });
  }

  /* What each button changes from the page as it is first seen, and what is to be seen then. */
  const EXPERIMENTS = [
    {
      name: "Make the features ten times larger",
      settings: { scale: 10 },
      see:
        "The value stops mattering. The k-th neighbour is now farther away in state than almost any two values are " +
        "apart: the shaded interval covers all values, nearly every n_v is N − 1, and VCSE pays what it would pay " +
        "without the value (MatchedStateEntropy), plus a constant. Move the slider back and watch the two " +
        "diagnostics below.",
    },
    {
      name: "Raise the value of one state in the room",
      settings: { moved: { 4: [-0.6752, -0.022, 0.8] } }, // where it was
      see:
        "Nothing has moved in the plane, and SE pays this state as before. For VCSE its neighbours are no longer " +
        "those around it, which differ in value, but the far ones in the corridor: ε has grown. Fewer states share " +
        "its value, so n_v has fallen. Drag the state down the strip, to the values of the room, and see both terms " +
        "change back.",
    },
    {
      name: "Lie in a heap of duplicates",
      settings: { cloud: "grid", select: 1 },
      see:
        "At least k states of this batch are equal to the selected one, so that ε is 0 and n_v is 0, and the " +
        "formula pays ψ(1)/2 + log 0.00001 = −11.80. Drag the state out of its heap by a little: it earns about ten " +
        "more.",
    },
    {
      name: "Count n_v as the paper prints it",
      settings: { cloud: "clusters", reading: "paper", select: 12 },
      see:
        "The paper counts n_v within ε_v/2, the distance in value of the k-th neighbour itself. That may happen to " +
        "be tiny, and jumps from one state to the next: walk through the states with the arrow keys and watch the " +
        "strip. The reading clean counts within ε/2.",
    },
  ];

  return { CLOUDS, EXPERIMENTS, makeCloud };
})();
