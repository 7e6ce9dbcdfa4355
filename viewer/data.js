'use strict';
/* The document (docs/view-format.md) as arrays, and questions to them. Nothing here draws. */

function bytesOf(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/* A column of LEB128 numbers; with `differences` each is told as its difference from the one before, signs in the lowest bit. */
function column(text, count, differences) {
  const out = new Float64Array(count);
  if (text === undefined) return out;
  const bytes = bytesOf(text);
  let at = 0, last = 0;
  for (let i = 0; i < count; i++) {
    const from = at;
    let n = 0, scale = 1, b;
    do {
      b = bytes[at++];
      n += (b & 127) * scale;
      scale *= 128;
    } while (b > 127);
    if (differences) {
      last += n > Number.MAX_SAFE_INTEGER ? longDifference(bytes, from, at) : n % 2 ? -(n + 1) / 2 : n / 2;
      n = last;
    }
    out[i] = n;
  }
  return out;
}
/* Of a number whose lowest bit, the sign, a double does not hold. */
function longDifference(bytes, from, to) {
  let n = 0n;
  for (let k = to - 1; k >= from; k--) n = n << 7n | BigInt(bytes[k] & 127);
  return Number(n & 1n ? -((n + 1n) >> 1n) : n >> 1n);
}

/* ---- Time -------------------------------------------------------------------------------------------- */

/* Events are what is counted; times belong to some of them, and pass evenly in between. */
class Times {
  constructor(doc) {
    const t = doc.times;
    this.events = doc.events;
    this.event = column(t.event, t.count, true);
    this.time = column(t.passed, t.count, false);
    for (let i = 1; i < t.count; i++) this.time[i] += this.time[i - 1];
    this.last = Math.max(t.last, t.count ? this.time[t.count - 1] : 0);
    this.zero = doc.has_times ? 0 : Number(t.first); /* what the file calls the first time, where it has numbers of its own */
  }
  /* `from` and `to` are one of event and time each. */
  static look(from, to, x) {
    let low = 0, high = from.length - 1;
    if (high < 0) return 0;
    if (x <= from[0]) return to[0];
    if (x >= from[high]) return to[high];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (from[middle] <= x) low = middle; else high = middle;
    }
    const span = from[high] - from[low];
    return span ? to[low] + (to[high] - to[low]) * (x - from[low]) / span : to[low];
  }
  timeOf(event) { return event >= this.events ? this.last : Times.look(this.event, this.time, event); }
  /* The last event that is not after a time. */
  eventAt(time) { return Times.look(this.time, this.event, time); }
}

/* ---- Live bytes -------------------------------------------------------------------------------------- */

/* The largest and smallest of any range, by groups of 16, and groups of groups. */
class Range {
  constructor(high, low) {
    this.levels = [[high, low]];
    while (high.length > 16) {
      const n = Math.ceil(high.length / 16), h = new Float64Array(n), l = new Float64Array(n);
      for (let i = 0; i < n; i++) {
        let top = -Infinity, bottom = Infinity;
        for (let k = i * 16; k < Math.min(high.length, i * 16 + 16); k++) {
          if (high[k] > top) top = high[k];
          if (low[k] < bottom) bottom = low[k];
        }
        h[i] = top;
        l[i] = bottom;
      }
      this.levels.push([h, l]);
      high = h;
      low = l;
    }
  }
  /* [largest, smallest] of places from..to, both in. */
  of(from, to) {
    let top = -Infinity, bottom = Infinity;
    const look = (level, i) => {
      const [h, l] = this.levels[level];
      if (h[i] > top) top = h[i];
      if (l[i] < bottom) bottom = l[i];
    };
    for (let level = 0; from <= to; level++) {
      if (level === this.levels.length - 1 || to - from < 32) {
        for (let i = from; i <= to; i++) look(level, i);
        break;
      }
      while (from % 16) look(level, from++);
      while (to % 16 !== 15 && to >= from) look(level, to--);
      from = from / 16;
      to = (to + 1) / 16 - 1;
    }
    return [top, bottom];
  }
}

/* ---- A space ----------------------------------------------------------------------------------------- */

const LEVELS = 26;

class Space {
  constructor(doc, raw, shared) {
    const n = raw.kept, c = raw.columns;
    Object.assign(this, { raw, doc, shared, n, events: doc.events });
    this.begin = column(c.begin, n, true);
    const life = column(c.life, n, false);
    this.end = new Float64Array(n);
    this.stays = new Uint8Array(n); /* alive at the end of the recording */
    for (let i = 0; i < n; i++) {
      this.stays[i] = life[i] ? 0 : 1;
      this.end[i] = life[i] ? this.begin[i] + life[i] : doc.events;
    }
    this.size = column(c.size, n, false);
    this.label = Uint32Array.from(column(c.label, n, false));
    this.stack = Uint32Array.from(column(c.stack, n, true));
    this.stream = c.stream === undefined ? null : column(c.stream, n, false);
    this.thread = c.thread === undefined ? null : column(c.thread, n, false);
    this.threadNames = new Map(raw.threads || []); /* a thread's number, to a text */
    this.address = c.address === undefined ? null : column(c.address, n, true);
    this.planned = c.planned === undefined ? null : column(c.planned, n, true);
    this.complete = n === raw.blocks;
    this.regions = raw.regions.map(([address, size, at]) => ({ address: BigInt('0x' + address), size, at }));
    const g = raw.segments;
    this.segments = new Segments(this, g);
    this.countLive();
    this.setAxis('events');
  }

  /* Exactly, if all blocks are told; else as the document has it. */
  countLive() {
    if (this.complete) {
      const live = new Float64Array(this.events);
      for (let i = 0; i < this.n; i++) {
        live[this.begin[i]] += this.size[i];
        if (!this.stays[i]) live[this.end[i]] -= this.size[i];
      }
      for (let e = 1; e < live.length; e++) live[e] += live[e - 1];
      this.perPlace = 1;
      this.live = new Range(live, live);
      return;
    }
    const k = this.raw.curve, high = column(k.high, k.buckets, true), below = column(k.below, k.buckets, false);
    this.perPlace = this.events / k.buckets;
    this.live = new Range(high, high.map((h, i) => h - below[i]));
  }
  liveBetween(from, to) {
    const last = this.live.levels[0][0].length - 1, clip = (e) => Math.max(0, Math.min(last, Math.floor(e / this.perPlace)));
    return this.live.of(clip(from), clip(to));
  }

  /* The picture's horizontal axis: "events" or "time". Blocks are kept by the length of their lives, those of about one length by
   * their begins: whoever asks for a range looks at few that are not in it. */
  setAxis(axis) {
    const { n, begin, end } = this, times = this.shared.times;
    this.axis = axis;
    if (axis === 'events') {
      this.x0 = begin;
      this.x1 = end;
      this.span = this.events;
    } else {
      this.x0 = begin.map((e) => times.timeOf(e));
      this.x1 = end.map((e) => times.timeOf(e));
      this.span = times.last || 1;
    }
    this.segments.setAxis();
    const unit = this.span / 2 ** (LEVELS - 2), level = new Uint8Array(n);
    this.starts = new Uint32Array(LEVELS + 1);
    this.longest = new Float64Array(LEVELS);
    for (let i = 0; i < n; i++) {
      const life = this.x1[i] - this.x0[i], k = Math.max(0, Math.min(LEVELS - 1, Math.ceil(Math.log2(life / unit + 1e-9))));
      level[i] = k;
      this.starts[k + 1]++;
      if (life > this.longest[k]) this.longest[k] = life;
    }
    for (let k = 0; k < LEVELS; k++) this.starts[k + 1] += this.starts[k];
    const next = this.starts.slice();
    this.order = new Uint32Array(n);
    this.orderX0 = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      const at = next[level[i]]++;
      this.order[at] = i;
      this.orderX0[at] = this.x0[i];
    }
  }
  /* From the first begin to the last end. */
  extent() {
    const first = this.n ? this.x0[0] : 0;
    if (this.lastEnd === undefined) {
      this.lastEnd = 0;
      for (let i = 0; i < this.n; i++) if (this.end[i] > this.lastEnd && !this.stays[i]) this.lastEnd = this.end[i];
      for (let i = 0; i < this.n; i++) if (this.stays[i]) this.lastEnd = this.events;
    }
    return [first, Math.max(first + this.span * 1e-6, this.xOf(this.lastEnd))];
  }
  xOf(event) { return this.axis === 'events' ? event : this.shared.times.timeOf(event); }
  eventAt(x) { return this.axis === 'events' ? x : this.shared.times.eventAt(x); }

  /* Calls `visit(first, last)` with ranges of `order` that hold every block alive somewhere in [from, to), and others; only
   * blocks that may live at least `least`. */
  ranges(from, to, least, visit) {
    for (let k = LEVELS - 1; k >= 0; k--) {
      if (this.starts[k] === this.starts[k + 1]) continue;
      if (this.longest[k] < least) return;
      const first = this.search(this.starts[k], this.starts[k + 1], from - this.longest[k]);
      const last = this.search(first, this.starts[k + 1], to);
      if (first < last) visit(first, last);
    }
  }
  /* The first place in [low, high) that begins at `x` or later. */
  search(low, high, x) {
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.orderX0[middle] < x) low = middle + 1; else high = middle;
    }
    return low;
  }

  /* Blocks alive right after an event. */
  aliveAt(event) {
    const found = [], x = this.xOf(event);
    this.ranges(x - this.span * 1e-9, x + this.span * 1e-9 + 1e-9, 0, (first, last) => {
      for (let k = first; k < last; k++) {
        const i = this.order[k];
        if (this.begin[i] <= event && event < this.end[i]) found.push(i);
      }
    });
    return found;
  }
  /* The block at a place of a picture; of several the smallest. -1: none. */
  blockAt(x, y, wide, tall, places) {
    let best = -1, bestInside = false;
    this.ranges(x - wide, x + wide, 0, (first, last) => {
      for (let k = first; k < last; k++) {
        const i = this.order[k], at = places[i];
        if (this.x1[i] + wide < x || this.x0[i] - wide > x || at - tall > y || at + this.size[i] + tall < y) continue;
        const inside = this.x0[i] <= x && x < this.x1[i] && at <= y && y < at + this.size[i];
        if (best < 0 || (inside && !bestInside) || (inside === bestInside && this.size[i] < this.size[best])) {
          best = i;
          bestInside = inside;
        }
      }
    });
    return best;
  }

  /* The address that a folded one stands for, in words. */
  addressWords(folded) {
    let low = 0, high = this.regions.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.regions[middle].at <= folded) low = middle + 1; else high = middle;
    }
    const r = this.regions[low - 1];
    if (!r) return '';
    const address = r.address + BigInt(Math.round(folded - r.at));
    return this.doc.has_times || address >= 0x100000000n ? '0x' + address.toString(16) : String(address);
  }
  /* Where an address stands, or -1. */
  fold(address) {
    for (const r of this.regions)
      if (address >= r.address && address < r.address + BigInt(r.size)) return r.at + Number(address - r.address);
    return -1;
  }

  /* What is free between live blocks of one range, [{at, size}], the largest first. An arena begins at 0, so what is free below its
   * lowest block counts; where a heap begins nobody knows. */
  holesAt(event, places) {
    const alive = this.aliveAt(event).filter((i) => this.size[i] > 0).sort((a, b) => places[a] - places[b]), holes = [];
    const arena = places === this.planned, starts = arena ? [0] : this.regions.map((r) => r.at);
    let region = arena || !this.doc.has_times ? 0 : -1, top = 0;
    for (const i of alive) {
      let here = Math.max(0, region);
      while (here + 1 < starts.length && starts[here + 1] <= places[i]) here++;
      if (here === region && places[i] > top) holes.push({ at: top, size: places[i] - top });
      top = Math.max(here === region ? top : 0, places[i] + this.size[i]);
      region = here;
    }
    return { alive, holes: holes.sort((a, b) => b.size - a.size) };
  }
}

/* ---- Names ------------------------------------------------------------------------------------------- */

class Names {
  constructor(doc) {
    const f = doc.frames;
    this.texts = doc.texts;
    this.count = f.count;
    this.caller = column(f.caller, f.count, true);
    this.function = column(f.function, f.count, false);
    this.file = column(f.file, f.count, false);
    this.module = column(f.module, f.count, false);
    this.line = column(f.line, f.count, false);
    this.address = column(f.address, f.count, false);
    this.general = column(f.general, f.count, false);
  }
  /* Frames are numbered from 1. */
  frame(f) {
    const name = this.texts[this.function[f - 1]];
    if (name) return name;
    const module = this.texts[this.module[f - 1]].replace(/^.*\//, '');
    return (module ? module + '+' : '') + '0x' + this.address[f - 1].toString(16);
  }
  place(f) {
    const file = this.texts[this.file[f - 1]].replace(/^.*\//, ''), line = this.line[f - 1];
    return file ? file + (line ? ':' + line : '') : this.texts[this.module[f - 1]].replace(/^.*\//, '');
  }
  stack(f) {
    const frames = [];
    for (; f; f = this.caller[f - 1]) frames.push(f);
    return frames;
  }
  /* The first frame that is not a general way to ask for memory; the command has the list of these. */
  site(f) {
    for (let k = f; k; k = this.caller[k - 1]) if (!this.general[k - 1]) return k;
    return f;
  }
}

/* ---- Words ------------------------------------------------------------------------------------------- */

function sizeWords(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let u = 0, n = bytes;
  while (n >= 1024 && u < units.length - 1) { n /= 1024; u++; }
  return (u ? n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0) : n) + '\u00a0' + units[u];
}
function countWords(n) { return Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, '\u202f'); }
/* Of a round number, as an axis has them. */
function roundTimeWords(ns) { return ns ? timeWords(ns).replace(/\.?0+(?= )/, (zeros) => (zeros[0] === '.' ? '' : zeros)).replace(/(\.\d*?)0+(?= )/, '$1') : '0'; }
function timeWords(ns) {
  if (ns < 1e3) return Math.round(ns) + ' ns';
  if (ns < 1e6) return (ns / 1e3).toFixed(2) + ' µs';
  if (ns < 1e9) return (ns / 1e6).toFixed(2) + ' ms';
  return (ns / 1e9).toFixed(3) + ' s';
}
