/* The page as a whole: its devices, axes, themes and keys, and its start. */

function setAxis(axis) {
  const s = state.space, v = state.view, from = v ? s.eventAt(v.x0) : 0, to = v ? s.eventAt(v.x1) : doc.events;
  state.axis = axis;
  for (const b of $('axes').children) b.setAttribute('aria-pressed', b.dataset.axis === axis);
  if (s.axis === axis) return;
  const [first, last] = s.extent(), all = !v || v.x1 - v.x0 >= (last - first) * 0.999;
  s.setAxis(axis);
  for (const p of panes) { if (p.picture) { p.picture.tiles.clear(); p.picture.stale = null; } p.curveKey = ''; }
  if (all) fitX(); else setView(s.xOf(from), s.xOf(to));
}
function setSide(side) {
  state.side = side;
  rebuildPanes();
}
function fillFacts() {
  const raw = state.space.raw, plan = raw.plan;
  const facts = [['Peak', sizeWords(raw.peak.bytes)], ['Lower bound', sizeWords(raw.bound_bytes), 'bound']];
  if (doc.has_addresses) facts.push([doc.input === 'plan' ? 'As given' : 'Range', sizeWords(raw.range_bytes)]);
  if (plan) facts.push(['Planned', sizeWords(plan.peak_bytes), 'plan']);
  if (raw.capacity_bytes) facts.push(['Capacity', sizeWords(raw.capacity_bytes)]);
  facts.push(['Blocks', countWords(raw.blocks)]);
  const refused = raw.moments.filter((m) => m.size).length;
  if (refused) facts.push(['Refused', countWords(refused), 'refused']);
  $('facts').replaceChildren(...facts.map(([a, b, c]) => element('div', {}, element('dt', {}, a), element('dd', { class: c }, b))));
  const said = [...doc.notices];
  if (raw.left_out) said.push(`${countWords(raw.left_out.blocks)} blocks of at most ${sizeWords(raw.left_out.largest_bytes)} are shaded, not told one by one`);
  if (!plan && raw.not_planned) said.push(raw.not_planned);
  $('notices').textContent = said.join(' · ');
}
function setSpace(k) {
  const s = spaces[k] || (spaces[k] = new Space(doc, doc.spaces[k], shared));
  Object.assign(state, { space: s, view: null, chosen: -1, hover: -1, only: -1, y: {}, moment: s.raw.peak.event });
  if (s.axis !== state.axis) s.setAxis(state.axis);
  $('sides').hidden = !(s.address && s.planned);
  if (!colourKinds().includes(state.colours)) [state.colours] = colourKinds();
  groupBlocks();
  if (s.groups.length < 2 && state.colours !== 'size') { /* one name for all tells nothing */
    state.colours = 'size';
    groupBlocks();
  }
  state.view = { x0: 0, x1: s.span };
  search($('search').value);
  rebuildPanes();
  fit();
  setAxis(state.axis);
  fillFacts();
  fillPanels();
}
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  readTheme();
  if (!state.space) return;
  for (const p of panes) p.curveKey = '';
  paint();
  fillPanels();
}

const sidesInTurn = ['both', 'before', 'after'];
const keys = {
  ArrowLeft: (e) => pan(-0.1, 0), ArrowRight: (e) => pan(0.1, 0), ArrowUp: (e) => pan(0, 0.1), ArrowDown: (e) => pan(0, -0.1),
  '+': (e) => zoomX(0.7, middleX()), '=': (e) => zoomX(0.7, middleX()), '-': (e) => zoomX(1 / 0.7, middleX()),
  '*': (e) => zoomY(0.7, (state.y.from + state.y.to) / 2), _: (e) => zoomY(1 / 0.7, (state.y.from + state.y.to) / 2),
  0: fit, Home: fit, '[': () => step(-1), ']': () => step(1), '{': () => step(-hundredth()), '}': () => step(hundredth()),
  p: toPeak, o: () => toTold(1), O: () => toTold(-1), j: () => neighbour(-1), k: () => neighbour(1), f: () => fillWith(state.chosen), n: () => nextMatch(1), b: () => nextMatch(-1),
  '/': () => { $('search').focus(); $('search').select(); }, v: () => setSide(sidesInTurn[(sidesInTurn.indexOf(state.side) + 1) % 3]),
  t: () => setAxis(state.axis === 'events' ? 'time' : 'events'), w: () => $('widen').click(), d: () => $('theme').click(), '?': () => $('keys').showModal(),
  c: () => { const all = colourKinds(); setColours(all[(all.indexOf(state.colours) + 1) % all.length]); },
  1: () => showTab('alive'), 2: () => showTab('block'), 3: () => showTab('holes'), 4: () => showTab('stacks'), 5: () => showTab('colours'),
  Escape: () => { state.chosen = -1; state.only = -1; $('search').value = ''; search(''); fillPanels(); },
};
function middleX() {
  const v = state.view, x = state.space.xOf(state.moment);
  return x > v.x0 && x < v.x1 ? x : (v.x0 + v.x1) / 2;
}
function hundredth() { return Math.max(1, Math.round((state.space.eventAt(state.view.x1) - state.space.eventAt(state.view.x0)) / 100)); }
function step(by) { setMoment(state.moment + by); reveal(state.moment, -1); }

function start() {
  document.title = doc.name + ' – berth view';
  $('name').textContent = doc.name;
  $('name').title = doc.name;
  setTheme(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (e) => setTheme(e.matches ? 'dark' : 'light'));
  $('space').append(...doc.spaces.map((s, k) => element('option', { value: k }, `${s.name} – ${sizeWords(s.peak.bytes)}`)));
  $('space').hidden = doc.spaces.length < 2;
  $('space').addEventListener('change', (e) => setSpace(Number(e.target.value)));
  if (doc.input === 'plan') $('sides').firstElementChild.textContent = 'Given';
  for (const b of $('sides').children) b.addEventListener('click', () => setSide(b.dataset.side));
  for (const b of $('axes').children) b.addEventListener('click', () => setAxis(b.dataset.axis));
  for (const tab of document.querySelectorAll('[role=tab]')) {
    tab.addEventListener('click', () => showTab(tab.id.slice(4)));
    tab.addEventListener('keydown', (e) => {
      const all = [...document.querySelectorAll('[role=tab]')], by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (!by) return;
      e.preventDefault();
      e.stopPropagation();
      const next = all[(all.indexOf(tab) + by + all.length) % all.length];
      next.focus();
      next.click();
    });
  }
  let timer = 0;
  $('search').addEventListener('input', (e) => { clearTimeout(timer); timer = setTimeout(() => search(e.target.value), doc.blocks > 100000 ? 200 : 0); });
  $('search').addEventListener('keydown', (e) => {
    if (e.key === 'Enter') { clearTimeout(timer); if (!state.matches) search(e.target.value); nextMatch(e.shiftKey ? -1 : 1); }
    if (e.key === 'Escape') { e.target.blur(); panes[0].map.focus(); }
  });
  $('fit').addEventListener('click', fit);
  $('theme').addEventListener('click', () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
  $('help').addEventListener('click', () => $('keys').showModal());
  $('widen').addEventListener('click', () => { document.querySelector('main').classList.toggle('wide'); fillPanels(); redraw(); });
  $('earlier').addEventListener('click', () => step(-1));
  $('later').addEventListener('click', () => step(1));
  $('to-peak').addEventListener('click', toPeak);
  document.addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|DIALOG)$/.test(e.target.tagName) || $('keys').open) return;
    const key = keys[e.key] || keys[e.key.toLowerCase()];
    if (!key) return;
    e.preventDefault();
    key(e);
  });
  new ResizeObserver(redraw).observe($('panes'));
  showTabOnce();
  setSpace(0);
}
function showTabOnce() {
  for (const tab of document.querySelectorAll('[role=tab]')) {
    tab.setAttribute('aria-selected', tab.id === 'tab-alive');
    tab.tabIndex = tab.id === 'tab-alive' ? 0 : -1;
    $(tab.getAttribute('aria-controls')).hidden = tab.id !== 'tab-alive';
  }
}
start();
