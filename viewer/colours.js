/* Names and colours of blocks: which belong together, and what each is painted with. */

function nameOf(i) {
  const s = state.space;
  if (s.label[i]) return names.texts[s.label[i]];
  return s.stack[i] ? names.frame(names.site(s.stack[i])) : '';
}
function keyOf(s, i) {
  if (state.colours === 'thread') return s.thread ? s.thread[i] : 0;
  if (state.colours === 'size') return Math.floor(Math.log2(Math.max(1, s.size[i])));
  if (state.colours === 'label' && s.label[i]) return s.label[i];
  return s.stack[i] ? -siteOf(s.stack[i]) : s.label[i]; /* texts are positive, frames negative */
}
const sites = new Map();
/* Two frames of one function are one call site here. */
function siteOf(stack) {
  let site = sites.get(stack);
  if (site === undefined) {
    const f = names.site(stack), text = names.frame(f);
    site = siteOf.byName.get(text);
    if (site === undefined) siteOf.byName.set(text, site = f);
    sites.set(stack, site);
  }
  return site;
}
siteOf.byName = new Map();
function threadWords(s, thread) {
  const name = s.threadNames.get(thread);
  return name ? `${thread + 1} (${names.texts[name]})` : String(thread + 1);
}
function keyWords(key) {
  if (state.colours === 'thread') return 'thread ' + threadWords(state.space, key);
  if (state.colours === 'size') return `${sizeWords(2 ** key)} to ${sizeWords(2 ** (key + 1))}`;
  return key < 0 ? names.frame(-key) : key ? names.texts[key] : 'without a name';
}

/* Groups by what colours mean: those with the most bytes at the peak come first and have a colour of their own. */
function groupBlocks() {
  const s = state.space, groups = new Map();
  const peak = s.raw.peak.event;
  s.rank = new Uint8Array(s.n);
  const keys = new Array(s.n);
  for (let i = 0; i < s.n; i++) {
    const key = keys[i] = keyOf(s, i);
    let g = groups.get(key);
    if (!g) groups.set(key, g = { key, blocks: 0, peak: 0, area: 0 });
    g.blocks++;
    g.area += s.size[i] * (s.end[i] - s.begin[i]);
    if (s.begin[i] <= peak && peak < s.end[i]) g.peak += s.size[i];
  }
  s.groups = [...groups.values()].sort((a, b) => b.peak - a.peak || b.area - a.area);
  /* few names are told apart by their neighbours, and names of one block each tell no kinds; of other many only the largest have a colour */
  s.isGrey = s.groups.length > 200 && s.groups.length < s.n / 2;
  s.groups.forEach((g, k) => { g.rank = s.isGrey ? Math.min(k, OTHERS) : k % OTHERS; });
  for (let i = 0; i < s.n; i++) s.rank[i] = groups.get(keys[i]).rank;
  s.keys = keys;
}
function colourOf(rank) { return rank < OTHERS ? PALETTE[rank] : css.others; }

/* What each block is painted with; those that a search or a colour leaves out fade. */
function paint() {
  const s = state.space, back = rgb(css.card), fill = new Uint32Array(FADED + 1), edge = new Uint32Array(FADED + 1);
  for (let k = 0; k <= OTHERS; k++) {
    const c = rgb(colourOf(k));
    fill[k] = word(c[0], c[1], c[2], 255);
    const e = mix(c, back, 0.45);
    edge[k] = word(...e, 255);
  }
  const faded = mix(rgb(css.others), back, 0.78);
  fill[FADED] = word(...faded, 255);
  edge[FADED] = word(...mix(faded, back, 0.5), 255);
  let group = s.rank;
  if (state.matches || state.only >= 0) {
    group = new Uint8Array(s.n);
    for (let i = 0; i < s.n; i++)
      group[i] = (state.matches && !state.matches[i]) || (state.only >= 0 && s.keys[i] !== s.groups[state.only].key) ? FADED : s.rank[i];
  }
  const rest = rgb(css.others);
  for (const p of panes) if (p.picture) p.picture.setPaint({ fill, edge, group, rest });
  redraw();
}
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const key of ['card', 'ink', 'soft', 'line', 'area', 'curve', 'bound', 'plan', 'hole', 'others', 'hatch', 'moment', 'segment', 'segment-line', 'refused'])
    css[key] = style.getPropertyValue('--' + key).trim();
}
