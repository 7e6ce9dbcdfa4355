/* Segments: what a cache or the program holds from the driver or the system, behind the blocks that live in it. */

class Segments {
  constructor(space, raw) {
    const n = raw.count, life = column(raw.life, n, false);
    this.space = space;
    this.count = n;
    this.begin = column(raw.begin, n, true);
    this.end = this.begin.map((b, i) => (life[i] ? b + life[i] - 1 : space.events));
    this.stays = life.map((l) => (l ? 0 : 1));
    this.address = column(raw.address, n, true);
    this.size = column(raw.size, n, false);
    this.stream = column(raw.stream, n, false);
    this.pool = column(raw.pool, n, false);
  }
  setAxis() {
    this.x0 = this.begin.map((e) => this.space.xOf(e));
    this.x1 = this.end.map((e) => this.space.xOf(e));
  }
  isAlive(i, event) { return this.begin[i] <= event && (event < this.end[i] || (this.stays[i] && event <= this.end[i])); }
  /* Those that are there right after an event, the lowest first. */
  at(event) {
    const found = [];
    for (let i = 0; i < this.count; i++) if (this.isAlive(i, event)) found.push(i);
    return found.sort((a, b) => this.address[a] - this.address[b]);
  }
  /* The one at a place of the picture, of several the smallest; -1: none. */
  under(x, y) {
    let best = -1;
    for (let i = 0; i < this.count; i++)
      if (this.x0[i] <= x && x < this.x1[i] && this.address[i] <= y && y < this.address[i] + this.size[i] &&
        (best < 0 || this.size[i] < this.size[best])) best = i;
    return best;
  }
  /* The bytes of `alive` blocks that lie in each of the segments `list`, which is by address. */
  activeIn(list, alive) {
    const s = this.space, blocks = [...alive].sort((a, b) => s.address[a] - s.address[b]);
    let first = 0;
    return list.map((g) => {
      const from = this.address[g], to = from + this.size[g];
      let bytes = 0;
      while (first < blocks.length && s.address[blocks[first]] + s.size[blocks[first]] <= from) first++;
      for (let k = first; k < blocks.length && s.address[blocks[k]] < to; k++)
        bytes += Math.max(0, Math.min(to, s.address[blocks[k]] + s.size[blocks[k]]) - Math.max(from, s.address[blocks[k]]));
      return Math.min(bytes, this.size[g]);
    });
  }

  /* Draws under what a picture has drawn already: outlines first, since what comes later lies deeper. */
  draw(context, picture, view, wide, tall, colours) {
    const sx = wide / (view.x1 - view.x0), sy = tall / (view.y1 - view.y0), ratio = devicePixelRatio || 1;
    const left = Math.round(view.x0 * sx), top = Math.round((picture.height - view.y1) * sy), boxes = [];
    for (let i = 0; i < this.count; i++) {
      const x0 = Math.max(-4, Math.round(this.x0[i] * sx) - left), x1 = Math.min(wide + 4, Math.max(x0 + 1, Math.round(this.x1[i] * sx) - left));
      const y0 = Math.max(-4, Math.round((picture.height - this.address[i] - this.size[i]) * sy) - top);
      const y1 = Math.min(tall + 4, Math.max(y0 + 1, Math.round((picture.height - this.address[i]) * sy) - top));
      if (x1 > x0 && y1 > y0) boxes.push([x0, y0, x1 - x0, y1 - y0]);
    }
    context.save();
    context.globalCompositeOperation = 'destination-over';
    context.strokeStyle = colours.line;
    context.lineWidth = ratio;
    context.beginPath();
    for (const [x, y, w, h] of boxes) if (w > 3 && h > 3) context.rect(x + ratio / 2, y + ratio / 2, w - ratio, h - ratio);
    context.stroke();
    context.fillStyle = colours.fill;
    for (const box of boxes) context.fillRect(...box);
    context.restore();
  }

  /* ---- Words ---- */

  /* Whose it is: pool and stream, as far as they are known. */
  ownerWords(i) {
    const words = [];
    if (this.pool[i]) words.push('pool ' + this.space.doc.texts[this.pool[i]]);
    if (this.stream[i]) words.push('stream ' + this.stream[i]);
    else if (this.pool[i]) words.push('stream 0');
    return words.join(', ');
  }
  activeWords(i, active) {
    const least = this.space.complete ? '' : 'at least ';
    return `${least}${sizeWords(active)} active, ${this.space.complete ? '' : 'at most '}${sizeWords(this.size[i] - active)} inactive`;
  }
}

/* What the tip says of the segment under a place; null: there is none. */
function segmentTip(s, x, y) {
  const g = s.segments, i = s.address ? g.under(x, y) : -1;
  if (i < 0) return null;
  const event = Math.max(0, Math.min(s.events - 1, Math.floor(s.eventAt(x) + 1e-6)));
  const [active] = g.activeIn([i], s.aliveAt(event)), owner = g.ownerWords(i);
  return [element('b', {}, 'segment'), element('div', {}, `${sizeWords(g.size[i])} (${countWords(g.size[i])} bytes)`),
    element('div', {}, `${g.activeWords(i, active)} at ${whenWords(event)}`), owner ? element('div', {}, owner) : undefined,
    element('div', {}, 'at ' + s.addressWords(g.address[i])),
    element('div', {}, `held from event ${countWords(g.begin[i])} to ${g.stays[i] ? 'the end' : countWords(g.end[i])}`)].filter((e) => e);
}

/* The segments of the moment as a table, for the panel of holes. */
function segmentPart(s, event) {
  const g = s.segments, list = s.address ? g.at(event) : [], most = 40;
  if (!list.length) return [];
  const active = g.activeIn(list, s.aliveAt(event)), sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  const held = sum(list.map((i) => g.size[i])), used = sum(active);
  const rows = list.map((i, k) => [i, active[k]]).sort((a, b) => (g.size[b[0]] - b[1]) - (g.size[a[0]] - a[1])).slice(0, most).map(([i, bytes]) =>
    element('tr', {}, element('td', { class: 'number' }, sizeWords(g.size[i])), element('td', { class: 'number' }, sizeWords(g.size[i] - bytes)),
      element('td', {}, ['at ' + s.addressWords(g.address[i]), g.ownerWords(i)].filter((w) => w).join(', '))));
  return [element('h3', {}, 'Segments'),
    element('p', {}, `${countWords(list.length)} ${list.length === 1 ? 'segment' : 'segments'} held: ${sizeWords(held)}, of them ${s.complete ? '' : 'at least '}${sizeWords(used)} active` +
      ` and ${s.complete ? '' : 'at most '}${sizeWords(held - used)} inactive.`),
    element('table', { id: 'segments' }, element('thead', {}, element('tr', {}, element('th', { class: 'number' }, 'Size'), element('th', { class: 'number' }, 'Inactive'), element('th', {}, 'Where'))),
      element('tbody', {}, ...rows)), list.length > most ? element('p', {}, `and ${countWords(list.length - most)} more`) : undefined].filter((e) => e);
}

/* The legend's entry. */
function segmentLegend(s) {
  if (!s.address || !s.segments.count) return undefined;
  return element('p', { id: 'segment-legend' }, element('span', { class: 'swatch segment' }),
    `Outlined behind the blocks: segments, memory held from the ${/^(cuda|hip|pinned|opencl)/.test(s.raw.name) ? 'driver' : 'system'} (${countWords(s.segments.count)})`);
}
