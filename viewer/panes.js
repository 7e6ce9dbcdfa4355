/* Panes: a curve, a map and their scales, drawn and marked. */

function makePane(planned, title, note) {
  const part = (name, attributes) => element('div', { class: name, ...attributes }, element('canvas', {}));
  const p = { planned, scaleLive: part('scale-live'), scaleMap: part('scale-map'), scaleX: part('scale-x'),
    curve: part('curve'), map: part('map', { tabindex: 0, role: 'application', 'aria-label': title + ': blocks by time and address. Press ? for the keys.' }) };
  p.peak = element('button', { class: 'peak', onclick: toPeak });
  p.boundLine = element('div', { class: 'mark line' }, element('span', {}));
  p.planLine = element('div', { class: 'mark line plan' }, element('span', {}));
  p.whens = [p.curve, p.map].map((parent) => { const w = element('div', { class: 'mark when' }); parent.append(w); return w; });
  p.caption = element('span', { class: 'caption' }, 'live bytes');
  p.curve.append(p.caption);
  p.unit = element('div', { class: 'unit' });
  p.frame = element('div', { class: 'mark frame', hidden: '' });
  p.hover = element('div', { class: 'mark frame hover', hidden: '' });
  p.curve.append(p.boundLine, p.planLine, p.peak);
  p.map.append(p.frame, p.hover);
  p.picture = (planned ? state.space.planned : state.space.address) ? new Map2D(state.space, planned) : null;
  p.box = element('div', { class: p.picture && hasAddresses(p) ? 'pane addresses' : 'pane', 'data-planned': planned },
    element('h2', {}, title, element('span', {}, note)), element('div', { class: 'stage' }, p.scaleLive, p.curve, p.scaleMap, p.map, p.unit, p.scaleX));
  listen(p);
  return p;
}
/* Whether its scale tells the system's addresses, which are long; else offsets in an arena. */
function hasAddresses(p) { return !p.planned && doc.has_times; }
function aboveBound(plan) {
  const words = sizeWords(plan.peak_bytes), bound = sizeWords(plan.bound_bytes);
  if (plan.peak_bytes === plan.bound_bytes) return words + ', no plan is smaller';
  return words + (words === bound ? `, ${(100 * (plan.peak_bytes / plan.bound_bytes - 1)).toPrecision(1)} % above the bound` : ', bound ' + bound);
}
function rebuildPanes() {
  const s = state.space, plan = s.raw.plan;
  const beforeNote = doc.input === 'plan' ? 'the file’s offsets reach ' + sizeWords(s.raw.range_bytes) : 'addresses reach over ' + sizeWords(s.raw.range_bytes);
  const afterNote = plan ? aboveBound(plan) : '';
  const sides = [];
  if (s.address && state.side !== 'after') sides.push([false, doc.input === 'plan' ? 'The plan as given' : 'As recorded', beforeNote]);
  if (s.planned && state.side !== 'before') sides.push([true, 'As Berth plans it', afterNote]);
  if (!sides.length) sides.push([false, 'Live bytes', s.raw.not_planned || '']);
  panes = sides.map((side) => makePane(...side));
  /* one scale of bytes for both, so that heights can be compared */
  const tallest = Math.max(...panes.map((p) => (p.picture ? p.picture.height : 1)));
  for (const p of panes) p.tallest = tallest;
  if (!state.y.before || state.y.tallest !== tallest) state.y = { from: 0, to: tallest * 1.02, tallest };
  $('panes').replaceChildren(...panes.map((p) => p.box));
  for (const b of $('sides').children) b.setAttribute('aria-pressed', b.dataset.side === state.side);
  paint();
}
function fitCanvas(parent) {
  const canvas = parent.firstChild, ratio = devicePixelRatio || 1;
  const wide = Math.max(1, Math.round(parent.clientWidth * ratio)), tall = Math.max(1, Math.round(parent.clientHeight * ratio));
  if (canvas.width !== wide || canvas.height !== tall) { canvas.width = wide; canvas.height = tall; }
  return [canvas.getContext('2d'), wide, tall];
}
function redraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; drawAll(); });
}
function windowOf() { return { x0: state.view.x0, x1: state.view.x1, y0: state.y.from, y1: state.y.to }; }

function liveTop(p) {
  const s = state.space, plan = s.raw.plan;
  return Math.max(1, s.raw.bound_bytes, s.raw.peak.bytes, p.planned && plan ? plan.peak_bytes : 0) * 1.2;
}
function drawAll() {
  if (!state.space) return;
  for (const p of panes) drawPane(p);
}
function drawPane(p) {
  const view = windowOf(), s = state.space, ratio = devicePixelRatio || 1;
  let [context, wide, tall] = fitCanvas(p.curve);
  const curveKey = [view.x0, view.x1, wide, tall, css.area, s.axis].join();
  const top = liveTop(p);
  if (p.curveKey !== curveKey) {
    drawCurve(context, s, view, wide, tall, top, { area: css.area, line: css.curve });
    drawTold(context, s, view, wide, tall, ratio);
    p.curveKey = curveKey;
  }
  if (p.picture) {
    [context, wide, tall] = fitCanvas(p.map);
    if (!p.picture.draw(context, view, wide, tall)) redraw();
    if (!p.planned) s.segments.draw(context, p.picture, view, wide, tall, { fill: css.segment, line: css['segment-line'] });
    drawRegions(p, context, view, wide, tall);
    p.picture.names(context, view, wide, tall, nameOf, (i) => ([0, 2, 5, 7].includes(s.rank[i]) && !(state.matches && !state.matches[i]) ? '#fff' : state.matches && !state.matches[i] ? css.soft : '#111'));
  }
  drawScales(p, view, top, ratio);
  place(p, view, top);
}
/* What lies between two ranges of addresses is folded away. */
function drawRegions(p, context, view, wide, tall) {
  if (p.planned) return;
  const sy = tall / (view.y1 - view.y0), regions = state.space.regions;
  context.fillStyle = css.hatch;
  for (let k = 0; k + 1 < regions.length; k++) {
    const from = regions[k].at + regions[k].size, to = regions[k + 1].at;
    const y = (view.y1 - to) * sy, high = (to - from) * sy;
    if (y > tall || y + high < 0) continue;
    context.fillRect(0, y, wide, Math.max(1, high));
  }
}
function drawScales(p, view, top, ratio) {
  const s = state.space;
  const text = (context, words, x, y, align) => { context.textAlign = align; context.fillText(words, x, y); };
  const begin = (parent) => {
    const [context, wide, tall] = fitCanvas(parent);
    context.clearRect(0, 0, wide, tall);
    context.font = `${10.5 * ratio}px system-ui, sans-serif`;
    context.fillStyle = css.soft;
    context.textBaseline = 'middle';
    return [context, wide, tall];
  };
  let [context, wide, tall] = begin(p.scaleLive);
  for (const t of byteTicks(0, top, tall / ratio / 34)) text(context, sizeWords(t), wide - 5 * ratio, Math.max(7 * ratio, Math.min(tall - 6 * ratio, tall - t / top * tall)), 'right');
  [context, wide, tall] = begin(p.scaleMap);
  if (p.picture) drawAddresses(p, context, view, wide, tall, ratio, text);
  p.unit.textContent = s.axis;
  [context, wide, tall] = begin(p.scaleX);
  let free = -Infinity; /* where the last words end */
  for (const t of ticks(Math.max(0, view.x0), Math.min(s.span, view.x1), wide / ratio / 90, 1)) {
    const x = (t - view.x0) / (view.x1 - view.x0) * wide;
    context.fillRect(x, 0, ratio, 4 * ratio);
    const words = s.axis === 'events' ? countWords(t) : doc.has_times ? roundTimeWords(t) : countWords(times.zero + t), half = context.measureText(words).width / 2 + 2;
    const middle = Math.max(half, Math.min(wide - half, x));
    if (middle - half < free) continue;
    text(context, words, middle, 12 * ratio, 'center');
    free = middle + half + 6 * ratio;
  }
}
function drawAddresses(p, context, view, wide, tall, ratio, text) {
  const s = state.space, y = (at) => (view.y1 - at) / (view.y1 - view.y0) * tall;
  if (!hasAddresses(p)) {
    for (const t of byteTicks(Math.max(0, view.y0), view.y1, tall / ratio / 48)) text(context, sizeWords(t), wide - 5 * ratio, Math.max(7 * ratio, Math.min(tall - 7 * ratio, y(t))), 'right');
    return;
  }
  let lastY = Infinity;
  /* Those that do not fit are told by how far behind their region's begin they are: the ends of addresses are all alike. */
  const fits = (words) => context.measureText(words).width <= wide - 6 * ratio;
  const show = (at, region, whole) => {
    const where = Math.max(7 * ratio, Math.min(tall - 7 * ratio, y(at)));
    if (lastY - where < 26 * ratio) return;
    lastY = where;
    const words = s.addressWords(at);
    text(context, whole ? words : at > region.at ? '+' + sizeWords(at - region.at) : '…' + words.slice(-7), wide - 5 * ratio, where, 'right');
  };
  const step = 2 ** Math.ceil(Math.log2((view.y1 - view.y0) / Math.max(1, tall / ratio / 48)));
  for (const r of s.regions) {
    if (r.at > view.y1 || r.at + r.size < view.y0) continue;
    const whole = fits('0x' + 'e'.repeat(r.address.toString(16).length)), odd = whole ? Number(r.address % BigInt(step)) : 0, first = r.at - odd + Math.ceil((Math.max(r.at, view.y0) - r.at + odd) / step) * step;
    if (r.at >= view.y0 && first - r.at > step / 2) show(r.at, r, whole);
    for (let at = first; at < Math.min(r.at + r.size, view.y1); at += step) show(at, r, whole);
  }
}
/* Marks: elements over the pictures, so that tests and screen readers find them. */
function place(p, view, top) {
  const s = state.space, raw = s.raw;
  const wide = p.curve.clientWidth, tall = p.curve.clientHeight, mapTall = p.map.clientHeight;
  const x = (event) => (s.xOf(event) - view.x0) / (view.x1 - view.x0) * wide;
  p.peak.style.left = x(raw.peak.event) + 'px';
  p.peak.style.top = (tall - raw.peak.bytes / top * tall - 15) + 'px';
  p.peak.setAttribute('aria-label', `Peak: ${sizeWords(raw.peak.bytes)} in ${countWords(raw.peak.blocks)} blocks at ${whenWords(raw.peak.event)}`);
  p.peak.title = p.peak.getAttribute('aria-label');
  p.peak.hidden = x(raw.peak.event) < -1 || x(raw.peak.event) > wide + 1;
  p.caption.hidden = !p.peak.hidden && x(raw.peak.event) > wide - 76; /* they would lie on each other */
  const line = (e, bytes, words) => { e.style.top = (tall - bytes / top * tall) + 'px'; e.lastChild.textContent = words; };
  line(p.boundLine, raw.bound_bytes, 'lower bound ' + sizeWords(raw.bound_bytes));
  p.planLine.hidden = !(p.planned && raw.plan) || raw.plan.peak_bytes === raw.bound_bytes;
  if (!p.planLine.hidden) line(p.planLine, raw.plan.peak_bytes, 'plan ' + sizeWords(raw.plan.peak_bytes));
  for (const w of p.whens) { w.style.left = x(state.moment) + 'px'; w.hidden = x(state.moment) < 0 || x(state.moment) > wide; }
  for (const [box, i] of [[p.frame, state.chosen], [p.hover, state.hover]]) {
    box.hidden = i < 0 || !p.picture;
    if (box.hidden) continue;
    const left = (s.x0[i] - view.x0) / (view.x1 - view.x0) * wide, right = (s.x1[i] - view.x0) / (view.x1 - view.x0) * wide;
    const at = p.picture.places[i], high = (view.y1 - at - s.size[i]) / (view.y1 - view.y0) * mapTall, low = (view.y1 - at) / (view.y1 - view.y0) * mapTall;
    const l = Math.max(-4, left - 1), t = Math.max(-4, high - 1);
    Object.assign(box.style, { left: l + 'px', top: t + 'px', width: Math.max(5, Math.min(wide + 4, right + 1) - l) + 'px', height: Math.max(5, Math.min(mapTall + 4, low + 1) - t) + 'px' });
    box.hidden = right < 0 || left > wide || low < 0 || high > mapTall;
  }
}
