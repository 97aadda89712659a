// Chooses the stretch of time that the page shows and judges at first. This is the requested slice,
// otherwise the steps, otherwise the time in which devices had work, otherwise the whole run.

// Steps represent the job if they contain at least this share of the devices' work.
const LEAST_OF_WORK = 0.1;
// If the page shows the time of the devices' work, it may leave out up to `FAR_WORK` of the work at
// either end. This work must be further from the rest than `FAR` of the remaining time. An example
// is a copy at the beginning of the job.
const FAR_WORK = 0.01;
const FAR = 0.05;

function scopes(trace, slice) {
  const run = { from: trace.first, to: trace.last, button: "Whole run", title: "The whole run" };
  const streams = trace.lanes.filter((lane) => lane.kind === "stream").flatMap((lane) => lane.rows);
  const steps = ofSteps(trace, streams);
  // Overlapping work counts twice here. This is precise enough for deciding whether the steps
  // contain enough of the work.
  const sum = (row, from, to) => trace.busy[trace.startsAt(row.from, row.to, to)] - trace.busy[trace.after(row.from, row.to, from)];
  const sums = (from, to) => streams.reduce((all, row) => all + sum(row, from, to), 0);
  if (slice) return { run, chosen: { from: slice[0], to: slice[1], button: "Slice", title: `The slice${steps ? `, with s${steps.title.slice(1)}` : ""}` } };
  if (steps && sums(steps.from, steps.to) >= sums(-Infinity, Infinity) * LEAST_OF_WORK) return { run, chosen: steps };
  const work = unionOfAll(streams.map((row) => within(trace, row, -Infinity, Infinity, DEVICE_KINDS))), all = total(work);
  return { run, chosen: all ? ofWork(work, all) : run };
}

// Returns the time of the devices' work, without a small share that is far before or after the
// rest.
function ofWork(work, all) {
  const cut = (first, by) => {
    let i = first;
    for (let left = all * FAR_WORK; left >= work[i + 1] - work[i]; i += by) left -= work[i + 1] - work[i];
    return i;
  };
  let a = cut(0, 2), b = cut(work.length - 2, -2);
  const far = (work[b + 1] - work[a]) * FAR;
  while (a > 0 && work[a] - work[a - 1] < far) a -= 2;
  while (b + 2 < work.length && work[b + 2] - work[b + 1] < far) b += 2;
  const from = work[a], to = work[b + 1];
  // Round the share down, so that a part of the work is never shown as 100 %.
  const share = Math.floor(1000 * total(work.slice(a, b + 2)) / all) / 10;
  const title = a === 0 && b + 2 === work.length ? "From the first work of a GPU to its last" : `${share.toFixed(1)} % of the GPUs' work`;
  return { from, to, button: "GPU work", title };
}

// Returns the time from the first step to the end of the last step, or to the end of the work that
// it launched.
function ofSteps(trace, streams) {
  const steps = trace.marks.filter((mark) => mark.step !== undefined);
  if (!steps.length) return null;
  const from = Math.min(...steps.map((step) => step.at)), end = Math.max(...steps.map((step) => step.end));
  let to = end;
  for (const row of streams) {
    for (let i = row.to - 1; i >= row.from && trace.end[i] > end; i--) {
      const launch = trace.launch[i], began = trace.start[launch >= 0 ? launch : i];
      if (began >= from && began < end) { to = Math.max(to, trace.end[i]); break; }
    }
  }
  const numbers = steps.filter((step) => step.rank === steps[0].rank).map((step) => step.step);
  const [first, last] = [Math.min(...numbers), Math.max(...numbers)];
  return { from, to, button: "Steps", title: first === last ? `Step ${first}` : `Steps ${first} to ${last}` };
}
