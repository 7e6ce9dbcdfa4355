/* Pictures: tiles of blocks that are kept while one pans, and the curve of live bytes. */

const TILE = 256, TILE_TALL = 512, TILES_KEPT = 160, TILE_MS = 9;

function rgb(text) {
  const probe = rgb.probe || (rgb.probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true }));
  probe.clearRect(0, 0, 1, 1);
  probe.fillStyle = text;
  probe.fillRect(0, 0, 1, 1);
  return probe.getImageData(0, 0, 1, 1).data;
}
function word(r, g, b, a) { return ((a << 24) | (b << 16) | (g << 8) | r) >>> 0; }
function mix(a, b, part) { return [0, 1, 2].map((k) => Math.round(a[k] + (b[k] - a[k]) * part)); }

/* One picture of a space: as recorded or as planned. */
class Map2D {
  constructor(space, planned) {
    this.space = space;
    this.planned = planned;
    this.places = planned ? space.planned : space.address;
    this.height = Math.max(1, planned ? space.raw.plan.peak_bytes : space.raw.extent_bytes);
    this.tiles = new Map();
    this.paint = null;
    this.stale = null;
    const left = space.raw.left_out;
    this.cells = left ? bytesOf((planned ? left.planned_cells : left.cells) || '') : null;
  }
  /* `paint`: { fill, edge: colours by group, group: of each block, rest: of the left out, version } */
  setPaint(paint) {
    this.paint = paint;
    this.tiles.clear();
  }

  /* Draws what [x0, x1) × [y0, y1) shows onto a context of wide × tall pixels. True: all of it, else more comes in the next frame. */
  draw(context, view, wide, tall) {
    const sx = wide / (view.x1 - view.x0), sy = tall / (view.y1 - view.y0);
    const left = Math.round(view.x0 * sx), top = Math.round((this.height - view.y1) * sy);
    const key = sx + ' ' + sy, until = performance.now() + TILE_MS;
    let missing = false;
    const ready = [];
    for (let ty = Math.floor(top / TILE_TALL); ty * TILE_TALL < top + tall; ty++)
      for (let tx = Math.floor(left / TILE); tx * TILE < left + wide; tx++) {
        const name = key + ' ' + tx + ' ' + ty;
        let tile = this.tiles.get(name);
        if (!tile && (performance.now() < until || !ready.length)) tile = this.render(tx, ty, sx, sy);
        if (!tile) { missing = true; continue; }
        this.tiles.delete(name); /* the latest used is the last */
        this.tiles.set(name, tile);
        ready.push([tile, tx * TILE - left, ty * TILE_TALL - top]);
      }
    context.clearRect(0, 0, wide, tall);
    if (missing && this.stale) {
      const s = this.stale, v = s.view;
      context.imageSmoothingEnabled = false;
      context.drawImage(s.canvas, (v.x0 - view.x0) * sx, (view.y1 - v.y1) * sy, (v.x1 - v.x0) * sx, (v.y1 - v.y0) * sy);
    }
    for (const [tile, x, y] of ready) {
      if (missing) context.clearRect(x, y, TILE, TILE_TALL);
      context.drawImage(tile, x, y);
    }
    for (const name of this.tiles.keys()) {
      if (this.tiles.size <= TILES_KEPT) break;
      this.tiles.delete(name);
    }
    if (!missing && (!this.stale || this.stale.key !== key)) this.keepStale(context.canvas, view, wide, tall, key);
    return !missing;
  }
  keepStale(canvas, view, wide, tall, key) {
    const copy = this.stale ? this.stale.canvas : document.createElement('canvas');
    copy.width = wide;
    copy.height = tall;
    copy.getContext('2d').drawImage(canvas, 0, 0);
    this.stale = { canvas: copy, view: { ...view }, key };
  }

  render(tx, ty, sx, sy) {
    const canvas = document.createElement('canvas'), context = canvas.getContext('2d');
    canvas.width = TILE;
    canvas.height = TILE_TALL;
    const image = context.createImageData(TILE, TILE_TALL), pixels = new Uint32Array(image.data.buffer);
    const ox = tx * TILE, oy = ty * TILE_TALL, s = this.space;
    if (this.cells) this.shade(pixels, ox, oy, sx, sy);
    s.ranges((ox - 1) / sx, (ox + TILE + 1) / sx, 0, (first, last) => this.fill(pixels, first, last, ox, oy, sx, sy));
    context.putImageData(image, 0, 0);
    return canvas;
  }
  /* The innermost loop: about a million of these are a picture. */
  fill(pixels, first, last, ox, oy, sx, sy) {
    const { order, x0, x1, size } = this.space, { places, height } = this, { group, fill, edge } = this.paint;
    for (let k = first; k < last; k++) {
      const i = order[k];
      let right = Math.round(x1[i] * sx) - ox, left = Math.round(x0[i] * sx) - ox;
      if (right <= left) right = left + 1;
      if (right <= 0 || left >= TILE) continue;
      let top = Math.round((height - places[i] - size[i]) * sy) - oy, bottom = Math.round((height - places[i]) * sy) - oy;
      if (bottom <= top) top = bottom - 1;
      if (bottom <= 0 || top >= TILE_TALL) continue;
      const colour = fill[group[i]], bordered = right - left > 3 && bottom - top > 3, line = bordered ? edge[group[i]] : colour;
      const from = left < 0 ? 0 : left, to = right > TILE ? TILE : right;
      const down = bottom > TILE_TALL ? TILE_TALL : bottom;
      for (let y = top < 0 ? 0 : top; y < down; y++) {
        const row = y * TILE, ink = bordered && y === top ? line : colour;
        if (to - from < 8) for (let x = row + from; x < row + to; x++) pixels[x] = ink;
        else pixels.fill(ink, row + from, row + to);
        if (bordered && right <= TILE) pixels[row + right - 1] = line;
      }
    }
  }
  /* Blocks that are not told one by one: how full each part of the picture is with them. */
  shade(pixels, ox, oy, sx, sy) {
    const { across, up } = this.space.raw.left_out, s = this.space;
    for (let cx = 0; cx < across; cx++) {
      const left = Math.max(0, Math.round(s.xOf(cx * s.events / across) * sx) - ox);
      const right = Math.min(TILE, Math.round(s.xOf((cx + 1) * s.events / across) * sx) - ox);
      if (right <= left) continue;
      for (let cy = 0; cy < up; cy++) {
        const level = this.cells[cy * across + cx];
        if (!level) continue;
        const top = Math.max(0, Math.round((this.height - (cy + 1) * this.height / up) * sy) - oy);
        const bottom = Math.min(TILE_TALL, Math.round((this.height - cy * this.height / up) * sy) - oy);
        const [r, g, b] = this.paint.rest, ink = word(r, g, b, 40 + Math.round(level * 0.75));
        for (let y = top; y < bottom; y++) pixels.fill(ink, y * TILE + left, y * TILE + right);
      }
    }
  }

  /* Names in the blocks that have room for one. */
  names(context, view, wide, tall, nameOf, inkOf) {
    const s = this.space, sx = wide / (view.x1 - view.x0), sy = tall / (view.y1 - view.y0), ratio = devicePixelRatio || 1;
    let written = 0;
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.textBaseline = 'middle';
    s.ranges(view.x0, view.x1, 44 * ratio / sx, (first, last) => {
      if (last - first > 60000) return;
      for (let k = first; k < last && written < 150; k++) {
        const i = s.order[k], tallness = s.size[i] * sy;
        if (tallness < 13 * ratio || s.x1[i] < view.x0) continue;
        const left = Math.max(0, (s.x0[i] - view.x0) * sx), right = Math.min(wide, (s.x1[i] - view.x0) * sx);
        const top = Math.max(0, (view.y1 - this.places[i] - s.size[i]) * sy), bottom = Math.min(tall, (view.y1 - this.places[i]) * sy);
        if (right - left < 44 * ratio || bottom - top < 13 * ratio) continue;
        const name = nameOf(i);
        if (!name) continue;
        context.fillStyle = inkOf(i);
        context.fillText(cutName(context, name, right - left - 10 * ratio), left + 5 * ratio, (top + bottom) / 2);
        written++;
      }
    });
  }
}

/* As much of a name as there is room for, in whole characters: its begin, and its end, in which many differ. */
function cutName(context, name, room) {
  let wide = context.measureText(name).width;
  if (wide <= room) return name;
  const letters = Array.from(name);
  let kept = letters.length, cut = '…';
  while (wide > room && kept > 1) {
    kept = Math.max(1, Math.min(kept - 1, Math.floor(kept * room / wide)));
    const tail = Math.floor(kept * 0.4);
    cut = letters.slice(0, kept - tail).join('') + '…' + letters.slice(letters.length - tail).join('');
    wide = context.measureText(cut).width;
  }
  return cut;
}

/* The curve: for each column of pixels what was alive at most and at least. */
function drawCurve(context, space, view, wide, tall, top, colours) {
  const perPixel = (view.x1 - view.x0) / wide, y = (bytes) => tall - bytes / top * tall;
  context.clearRect(0, 0, wide, tall);
  const highs = new Float64Array(wide), lows = new Float64Array(wide);
  for (let x = 0; x < wide; x++) {
    const from = space.eventAt(view.x0 + x * perPixel), to = space.eventAt(view.x0 + (x + 1) * perPixel);
    const outside = view.x0 + (x + 1) * perPixel <= 0 || view.x0 + x * perPixel >= space.span;
    [highs[x], lows[x]] = outside ? [0, 0] : space.liveBetween(Math.floor(from), Math.max(Math.floor(from), Math.ceil(to) - 1));
  }
  /* the order of what happens at one time of a problem has no meaning */
  if (space.axis === 'time' && !space.doc.has_times) lows.set(highs);
  context.fillStyle = colours.area;
  context.beginPath();
  context.moveTo(0, tall);
  for (let x = 0; x < wide; x++) { context.lineTo(x, y(highs[x])); context.lineTo(x + 1, y(highs[x])); }
  context.lineTo(wide, tall);
  context.fill();
  context.fillStyle = colours.line;
  for (let x = 0; x < wide; x++) {
    const before = x ? highs[x - 1] : highs[x];
    const a = y(Math.max(highs[x], before)), b = Math.max(a + 1.5, y(Math.min(lows[x], before)));
    context.fillRect(x, a, 1, b - a);
  }
}

/* What was refused, and moments that the program has named: each a line, with a cross or a flag at its foot. */
function drawTold(context, space, view, wide, tall, ratio) {
  let last = -Infinity;
  for (const m of space.raw.moments) {
    const x = Math.round((space.xOf(m.event) - view.x0) / (view.x1 - view.x0) * wide), r = 3.5 * ratio, y = tall - 6 * ratio;
    if (x < 0 || x > wide || (x - last < 3 * ratio && !m.size)) continue;
    last = x;
    context.strokeStyle = context.fillStyle = m.size ? css.refused : css.soft;
    context.lineWidth = m.size ? 1.6 * ratio : ratio;
    context.globalAlpha = 0.5;
    context.fillRect(x, 0, ratio, tall);
    context.globalAlpha = 1;
    context.beginPath();
    if (m.size) { context.moveTo(x - r, y - r); context.lineTo(x + r, y + r); context.moveTo(x - r, y + r); context.lineTo(x + r, y - r); context.stroke(); }
    else { context.moveTo(x, 0); context.lineTo(x + 2 * r, r); context.lineTo(x, 2 * r); context.fill(); }
  }
}

/* Round numbers for an axis, about `count` of them, `least` apart at least. */
function ticks(from, to, count, least) {
  const raw = Math.max(least, (to - from) / Math.max(1, count)), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw), list = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) list.push(t);
  return list;
}
function byteTicks(from, to, count) {
  const step = 2 ** Math.ceil(Math.log2(Math.max(1, (to - from) / Math.max(1, count)))), list = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) list.push(t);
  return list;
}
