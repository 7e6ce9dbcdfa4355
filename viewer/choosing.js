/* Choosing: a moment, a block, or what a search finds. */

/* ---- Words of blocks and moments --------------------------------------------------------------------- */

function whenWords(event) {
  const time = times.timeOf(event);
  return doc.has_times ? `event ${countWords(event)}, ${timeWords(time)}` : 'time ' + countWords(times.zero + time);
}
function lifeWords(i) {
  const s = state.space, from = s.begin[i], to = s.end[i];
  if (!doc.has_times) return `alive from ${countWords(times.zero + times.timeOf(from))} to ${s.stays[i] ? 'the end' : countWords(times.zero + times.timeOf(to))}`;
  return `alive from event ${countWords(from)} to ${s.stays[i] ? 'the end' : countWords(to)}, ${timeWords(times.timeOf(to) - times.timeOf(from))}`;
}
function placesWords(i) {
  const s = state.space, list = [];
  if (s.address) list.push('at ' + s.addressWords(s.address[i]));
  if (s.planned) list.push('planned at ' + offsetWords(s.planned[i]));
  return list;
}
/* A place in an arena. */
function offsetWords(at) { return at < 1024 ? sizeWords(at) : `${sizeWords(at)} (${countWords(at)} bytes)`; }

/* ---- What was refused, and named moments --------------------------------------------------------------- */

/* They stand before the event that has their number: how it was then is how it was after the one before. */
function momentOf(m) { return Math.max(0, m.event - 1); }
function toldWords(m) {
  const by = m.label ? names.texts[m.label] : m.stack ? names.frame(names.site(m.stack)) : '';
  return m.size ? `refused: ${sizeWords(m.size)}${by ? ' for ' + by : ''}` : `moment: ${by || 'without a name'}`;
}
function fillTold() {
  const all = state.space.raw.moments.filter((m) => momentOf(m) === state.moment), here = all.map(toldWords);
  $('told').classList.toggle('refused', all.some((m) => m.size));
  $('told').textContent = here.length > 3 ? `${here.slice(0, 3).join('; ')}; and ${here.length - 3} more` : here.join('; ');
  $('told').hidden = !here.length;
}
/* To the next one after the moment, or the one before; behind the last comes the first. */
function toTold(step) {
  const all = state.space.raw.moments.map(momentOf), on = all.filter((e) => (step > 0 ? e > state.moment : e < state.moment)), at = on.length ? on : all;
  if (!at.length) return;
  setMoment(step > 0 ? Math.min(...at) : Math.max(...at));
  reveal(state.moment, -1);
}
/* The one under a place of the curve; null: none. */
function toldTip(x, reach) {
  const s = state.space, near = s.raw.moments.filter((m) => Math.abs(s.xOf(m.event) - x) <= reach);
  if (!near.length) return null;
  return [...near.slice(0, 6).map((m) => element('div', {}, toldWords(m))), element('div', {}, 'at ' + whenWords(momentOf(near[0])))];
}
/* The legend's entry. */
function toldLegend(s) {
  const refused = s.raw.moments.filter((m) => m.size).length, named = s.raw.moments.length - refused, words = [];
  if (refused) words.push(`✕ refused allocations (${countWords(refused)})`);
  if (named) words.push(`⚑ named moments (${countWords(named)})`);
  return words.length ? element('p', { id: 'told-legend' }, words.join(', ') + ' under the curve; O goes to the next') : undefined;
}

/* ---- Choosing ---------------------------------------------------------------------------------------- */

function setMoment(event) {
  state.moment = Math.max(0, Math.min(doc.events - 1, event));
  fillPanels();
  redraw();
}
function choose(i) {
  state.chosen = i;
  fillPanels();
  redraw();
}
function toPeak() {
  setMoment(state.space.raw.peak.event);
  reveal(state.moment, -1);
}
/* The neighbour of the chosen block by address, of those alive at the moment. */
function neighbour(step) {
  const s = state.space, places = panes[0].picture ? panes[0].picture.places : s.begin;
  const alive = s.aliveAt(state.moment).sort((a, b) => places[a] - places[b]);
  if (!alive.length) return;
  const at = alive.indexOf(state.chosen);
  choose(alive[at < 0 ? (step > 0 ? 0 : alive.length - 1) : Math.max(0, Math.min(alive.length - 1, at + step))]);
  reveal(state.moment, state.chosen);
  announce(`${nameOf(state.chosen)} ${sizeWords(s.size[state.chosen])}`);
}
function announce(words) { $('found').setAttribute('aria-label', words); }

/* ---- Search ------------------------------------------------------------------------------------------ */

function sizeOfWords(words) {
  const m = /^([\d.]+)\s*([kmgt]?)(i?b)?$/i.exec(words);
  return m ? Number(m[1]) * 1024 ** ' kmgt'.indexOf(m[2].toLowerCase() || ' ') : NaN;
}
/* Whether each block is meant: by name, label, any function of its stack, an address in it, or its size. */
function matcher(query) {
  const s = state.space, size = /^[<>]/.test(query) ? sizeOfWords(query.slice(1).trim()) : NaN;
  if (!Number.isNaN(size)) return query[0] === '>' ? (i) => s.size[i] > size : (i) => s.size[i] < size;
  if (/^0x[0-9a-f]+$/i.test(query)) {
    const at = s.fold(BigInt(query));
    return (i) => s.address && at >= 0 && s.address[i] <= at && at < s.address[i] + s.size[i];
  }
  const words = query.toLowerCase(), texts = new Uint8Array(doc.texts.length), frames = new Uint8Array(names.count + 1);
  doc.texts.forEach((t, k) => { texts[k] = t.toLowerCase().includes(words) ? 1 : 0; });
  for (let f = 1; f <= names.count; f++) /* callers come before */
    frames[f] = texts[names.function[f - 1]] || texts[names.file[f - 1]] || frames[names.caller[f - 1]] || (!names.function[f - 1] && names.frame(f).includes(words)) ? 1 : 0;
  return (i) => texts[s.label[i]] === 1 || frames[s.stack[i]] === 1;
}
function search(query) {
  const s = state.space;
  state.match = -1;
  state.matchList = [];
  state.matches = null;
  if (query.trim()) {
    const test = matcher(query.trim());
    state.matches = new Uint8Array(s.n);
    for (let i = 0; i < s.n; i++) if (test(i)) { state.matches[i] = 1; state.matchList.push(i); }
    state.matchList.sort((a, b) => s.size[b] - s.size[a] || a - b);
  }
  $('found').textContent = query.trim() ? countWords(state.matchList.length) : '';
  paint();
}
function nextMatch(step) {
  const list = state.matchList;
  if (!list.length) return;
  state.match = (state.match + step + list.length + (state.match < 0 && step < 0 ? 1 : 0)) % list.length;
  const i = list[state.match], s = state.space;
  $('found').textContent = `${countWords(state.match + 1)} of ${countWords(list.length)}`;
  if (!(s.begin[i] <= state.moment && state.moment < s.end[i])) setMoment(s.begin[i]);
  choose(i);
  reveal(s.begin[i], i);
  showTab('block');
}
