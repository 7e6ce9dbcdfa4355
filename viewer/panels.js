/* Panels: what is alive, the chosen block, holes and colours. */

function showTab(name) {
  state.tab = name;
  for (const tab of document.querySelectorAll('[role=tab]')) {
    const is = tab.id === 'tab-' + name;
    tab.setAttribute('aria-selected', is);
    tab.tabIndex = is ? 0 : -1;
    $(tab.getAttribute('aria-controls')).hidden = !is;
  }
  fillPanels();
}
function fillPanels() {
  $('when').textContent = whenWords(state.moment);
  fillTold();
  ({ alive: fillAlive, block: fillBlock, holes: fillHoles, stacks: fillStacks, colours: fillColours })[state.tab]();
}
function swatch(rank) { const e = element('span', { class: 'swatch' }); e.style.background = colourOf(rank); return e; }
function activate(handler) { return { onclick: handler, onkeydown: (e) => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); e.stopPropagation(); handler(); } } }; }

function fillAlive() {
  const s = state.space, alive = s.aliveAt(state.moment), most = 250;
  const [live] = s.liveBetween(state.moment, state.moment);
  const orders = { size: (a, b) => s.size[b] - s.size[a], age: (a, b) => s.begin[a] - s.begin[b], name: (a, b) => nameOf(a).localeCompare(nameOf(b)) || s.size[b] - s.size[a] };
  const told = alive.reduce((sum, i) => sum + s.size[i], 0);
  alive.sort(orders[state.sort]);
  const head = (key, words, number) => element('th', number ? { class: 'number' } : {}, element('button', { 'aria-pressed': state.sort === key, onclick: () => { state.sort = key; fillPanels(); } }, words));
  const rows = alive.slice(0, most).map((i) => element('tr', { class: 'row', tabindex: 0, 'aria-selected': i === state.chosen, ...activate(() => { choose(i); reveal(state.moment, i); }) },
    element('td', { class: 'number' }, sizeWords(s.size[i])), element('td', { class: 'name' }, swatch(s.rank[i]), nameOf(i) || 'block ' + i),
    element('td', { class: 'number' }, doc.has_times ? timeWords(times.timeOf(state.moment) - times.timeOf(s.begin[i])) : countWords(times.timeOf(state.moment) - times.timeOf(s.begin[i])))));
  const rest = s.complete || live <= told ? '' : `; smaller ones, ${sizeWords(Math.max(0, live - told))}, are not told one by one`;
  refill($('panel-alive'),
    element('p', {}, `${sizeWords(told)} in ${countWords(alive.length)} ${alive.length === 1 ? 'block' : 'blocks'}${rest}` + (s.raw.peak.bytes ? `, ${(100 * live / s.raw.peak.bytes).toFixed(live === s.raw.peak.bytes ? 0 : 1)} % of the peak` : '')),
    element('table', {}, element('thead', {}, element('tr', {}, head('size', 'Size', true), head('name', 'Name'), head('age', 'Age', true))), element('tbody', {}, ...rows)),
    alive.length > most ? element('p', {}, `and ${countWords(alive.length - most)} more`) : undefined);
}
function fillBlock() {
  const s = state.space, i = state.chosen;
  if (i < 0) {
    $('panel-block').replaceChildren(element('p', {}, 'Click a block, or press J or K to go through those alive at the moment.'));
    return;
  }
  const facts = [['Size', `${sizeWords(s.size[i])}, ${countWords(s.size[i])} bytes`], ['Begins', whenWords(s.begin[i])], ['Ends', s.stays[i] ? 'not before the end' : whenWords(s.end[i])]];
  if (doc.has_times) facts.push(['Lives', timeWords(times.timeOf(s.end[i]) - times.timeOf(s.begin[i]))]);
  if (s.address) facts.push(['Address', s.addressWords(s.address[i])]);
  if (s.planned) facts.push(['Planned at', offsetWords(s.planned[i])]);
  if (s.thread) facts.push(['Thread', threadWords(s, s.thread[i])]);
  if (s.stream) facts.push(['Stream', String(s.stream[i])]);
  $('panel-block').replaceChildren(element('h3', {}, swatch(s.rank[i]), nameOf(i) || 'block ' + i),
    element('dl', { class: 'facts' }, ...facts.flatMap(([a, b]) => [element('dt', {}, a), element('dd', {}, b)])),
    element('button', { onclick: () => fillWith(i) }, 'Fill the picture with it'),
    element('ol', { class: 'stack' }, ...(s.stack[i] ? names.stack(s.stack[i]) : []).map((f) => element('li', {}, names.frame(f), element('small', {}, names.place(f))))));
}
function fillHoles() {
  const s = state.space, parts = [];
  for (const p of panes) {
    if (!p.picture) continue;
    const { alive, holes } = s.holesAt(state.moment, p.picture.places), total = holes.reduce((sum, h) => sum + h.size, 0);
    const strip = element('canvas', { role: 'img', 'aria-label': 'Addresses at the moment: blocks in colour, holes hatched' });
    parts.push(element('h3', {}, p.planned ? 'As planned' : doc.input === 'plan' ? 'As given' : 'As recorded'), element('div', { class: 'strip' }, strip),
      element('p', {}, holes.length ? `${countWords(holes.length)} ${holes.length === 1 ? 'hole' : 'holes'} between live blocks: ${sizeWords(total)} free, but no block above ${sizeWords(holes[0].size)} fits` +
        ` (${((1 - holes[0].size / total) * 100).toFixed(0)} % fragmented).` : 'No holes between live blocks.'),
      element('table', {}, element('tbody', {}, ...holes.slice(0, 40).map((h) => element('tr', {}, element('td', { class: 'number' }, sizeWords(h.size)), element('td', {}, 'at ' + (p.planned ? offsetWords(h.at) : s.addressWords(h.at))))))));
    requestAnimationFrame(() => drawStrip(strip, p, alive, holes));
  }
  if (panes.some((p) => p.picture && !p.planned)) parts.push(...segmentPart(s, state.moment));
  if (!s.complete) parts.push(element('p', {}, 'Blocks that are not told one by one count as free here.'));
  $('panel-holes').replaceChildren(...(parts.length ? parts : [element('p', {}, 'Nothing here has an address.')]));
}
function drawStrip(canvas, p, alive, holes) {
  const s = state.space, ratio = devicePixelRatio || 1, wide = canvas.width = Math.max(1, canvas.clientWidth * ratio), tall = canvas.height = Math.max(1, canvas.clientHeight * ratio);
  const context = canvas.getContext('2d'), scale = wide / p.tallest;
  context.fillStyle = css.hatch;
  context.fillRect(0, 0, wide, tall);
  for (const h of holes) {
    const x = h.at * scale, w = Math.max(1, h.size * scale);
    context.fillStyle = css.card;
    context.fillRect(x, 0, w, tall);
    context.save();
    context.beginPath();
    context.rect(x, 0, w, tall);
    context.clip();
    context.strokeStyle = css.hole;
    for (let k = x - tall - (x % 6); k < x + w; k += 6 * ratio) { context.beginPath(); context.moveTo(k, tall); context.lineTo(k + tall, 0); context.stroke(); }
    context.restore();
  }
  for (const i of alive) {
    context.fillStyle = colourOf(s.rank[i]);
    context.fillRect(p.picture.places[i] * scale, 0, Math.max(0.75, s.size[i] * scale), tall);
  }
}
function fillColours() {
  const s = state.space, options = colourKinds().map((kind) => [kind, { label: 'label, or call site', site: 'call site', thread: 'thread', size: 'size' }[kind]]);
  const pick = element('select', { 'aria-label': 'What colours mean', onchange: (e) => setColours(e.target.value) }, ...options.map(([value, words]) => element('option', { value, selected: state.colours === value ? '' : undefined }, words)));
  const rows = s.groups.slice(0, 60).map((g, k) => element('tr', { class: 'row', tabindex: 0, 'aria-selected': state.only === k, ...activate(() => { state.only = state.only === k ? -1 : k; paint(); fillPanels(); }) },
    element('td', { class: 'name' }, swatch(g.rank), keyWords(g.key)), element('td', { class: 'number' }, sizeWords(g.peak)), element('td', { class: 'number' }, countWords(g.blocks))));
  refill($('panel-colours'), element('p', {}, 'Colours are by ', pick), segmentLegend(s), toldLegend(s), element('table', {}, element('thead', {}, element('tr', {}, element('th', {}, 'Name'), element('th', { class: 'number' }, 'At the peak'), element('th', { class: 'number' }, 'Blocks'))),
    element('tbody', {}, ...rows)), s.groups.length > 60 ? element('p', {}, `and ${countWords(s.groups.length - 60)} more${s.isGrey ? ', all grey' : ''}`) : undefined);
}
/* What there is to colour by. */
function colourKinds() {
  const c = state.space.raw.columns;
  return ['label', 'site', 'thread', 'size'].filter((kind) => ({ label: c.label, site: c.stack, thread: c.thread, size: true })[kind]);
}
function setColours(kind) {
  state.colours = kind;
  state.only = -1;
  groupBlocks();
  paint();
  fillPanels();
}
