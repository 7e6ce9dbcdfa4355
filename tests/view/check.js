/* What the page of `berth view` shows and does, in a real Chromium.
 *
 * usage: node check.js BERTH FOLDER     FOLDER keeps what npm fetched; BERTH_SCREENSHOTS names one for pictures to look at
 *
 * Exits 77 where npm, its registry or Chromium are not to be had. */
'use strict';
const assert = require('assert');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { spawnSync } = require('child_process');

const [berth, folder] = process.argv.slice(2);
const PACKAGE = 'playwright-core';
const work = fs.mkdtempSync(path.join(os.tmpdir(), 'berth-view-'));

function skip(why) {
  console.log(why);
  process.exit(77);
}
function run(...words) {
  const done = spawnSync(berth, words, { encoding: 'utf8', maxBuffer: 1 << 28 });
  assert.strictEqual(done.status, 0, `berth ${words.join(' ')}: ${done.stderr}`);
  return done.stdout;
}
function fetchDriver() {
  const place = path.join(folder, 'package');
  if (!fs.existsSync(place)) {
    fs.mkdirSync(folder, { recursive: true });
    const done = spawnSync('npm', ['pack', '--silent', PACKAGE], { cwd: folder, encoding: 'utf8' });
    if (done.error || done.status) skip(`npm pack ${PACKAGE} fails: ${done.error || done.stderr.slice(-200)}`);
    spawnSync('tar', ['xzf', done.stdout.trim().split(/\s+/).pop()], { cwd: folder });
  }
  return require(place);
}
const browserPath = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find((p) => fs.existsSync(p));
if (!browserPath) skip('no Chromium');
const { chromium } = fetchDriver();

/* The rows of a plan that the command has made. */
function rowsOf(csv) {
  const [head, ...lines] = fs.readFileSync(csv, 'utf8').trim().split('\n').map((line) => line.split(','));
  return lines.map((cells) => Object.fromEntries(cells.map((cell, k) => [head[k], cell])));
}
function make(name, text) {
  const file = path.join(work, name);
  fs.writeFileSync(file, text);
  return file;
}
function view(input, ...options) {
  const page = path.join(work, `page${view.count = (view.count || 0) + 1}.html`);
  run('view', input, '-q', '-o', page, ...options);
  return page;
}

const SMALL = 'id,lower,upper,size\npixels,0,2,4096\nconv1,1,4,16384\nkept,1,8,8192\nrelu1,3,5,16384\nconv2,4,7,12288\nsum,6,9,8192\nout,8,10,1024\n';

/* A snapshot of PyTorch: one segment that is there all the time, one that events map and unmap, and an idle one of a private pool. */
function snapshot(name) {
  const file = path.join(work, name), script = `
import pickle, sys
A, MiB = 0x7f0000000000, 1 << 20
frames = [{"filename": "a.py", "line": 3, "name": "f"}]
def event(action, address, size, stream=0):
    event.time += 1000
    return {"action": action, "addr": address, "size": size, "stream": stream, "time_us": event.time, "frames": frames}
event.time = 0
def segment(address, size, type, pool, blocks):
    return {"device": 0, "address": address, "total_size": size, "stream": 0, "segment_type": type, "segment_pool_id": pool, "is_expandable": False, "blocks": blocks}
events = [event("alloc", A, MiB // 2), event("segment_alloc", A + (1 << 28), 20 * MiB, 7), event("alloc", A + (1 << 28), 10 * MiB, 7),
          event("alloc", A + MiB // 2, MiB // 2), event("free_completed", A + (1 << 28), 10 * MiB, 7), event("segment_free", A + (1 << 28), 20 * MiB, 7),
          event("alloc", A + MiB, MiB // 2), event("free_completed", A + MiB, MiB // 2)]
half = {"size": MiB // 2, "requested_size": MiB // 2, "state": "active_allocated", "frames": frames}
segments = [segment(A, 2 * MiB, "small", (0, 0), [half, half, {"size": MiB, "requested_size": 0, "state": "inactive", "frames": []}]),
            segment(A + (1 << 29), 2 * MiB, "large", (0, 3), [{"size": 2 * MiB, "requested_size": 0, "state": "inactive", "frames": []}])]
pickle.dump({"segments": segments, "device_traces": [events]}, open(sys.argv[1], "wb"))`;
  const done = spawnSync('python3', ['-c', script, file], { encoding: 'utf8' });
  assert.strictEqual(done.status, 0, done.stderr);
  return file;
}

class Tab {
  static async open(browser, file, width = 1280, height = 720, scheme = 'light', more = {}) {
    const t = new Tab();
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, ...more });
    t.page = await context.newPage();
    t.wrong = [];
    t.page.on('pageerror', (e) => t.wrong.push('error ' + e.message));
    t.page.on('console', (m) => { if (m.type() === 'error') t.wrong.push('console ' + m.text()); });
    t.page.on('dialog', (d) => { t.wrong.push('dialog ' + d.message()); d.dismiss(); });
    t.page.on('request', (r) => { if (!r.url().startsWith('file://') && !r.url().startsWith('data:')) t.wrong.push('request ' + r.url()); });
    await t.page.goto('file://' + file);
    await t.settle();
    return t;
  }
  /* Until two frames have been drawn and nothing waits to be. */
  settle() { return this.page.evaluate(async () => { do { await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame); } while (pending); }); }
  async press(key) { await this.page.keyboard.press(key); await this.settle(); }
  async text(selector) { return (await this.page.locator(selector).first().innerText()).replace(/[\u00a0\u202f]/g, ' '); }
  look(what) { return this.page.evaluate(what); }
  /* Where a time and an address stand on the screen, from the window that the page says it shows. */
  async spot(time, address, pane = 0) {
    const box = await this.page.locator('.map').nth(pane).boundingBox(), w = await this.look('windowOf()');
    return { x: box.x + (time - w.x0) / (w.x1 - w.x0) * box.width, y: box.y + (w.y1 - address) / (w.y1 - w.y0) * box.height };
  }
  async close() {
    assert.deepStrictEqual(this.wrong, []);
    await this.page.context().close();
  }
}

const checks = {
  async 'hover names the right block'(browser) {
    const problem = make('small.csv', SMALL), plan = path.join(work, 'planned.csv');
    run('plan', problem, '-q', '-o', plan);
    const t = await Tab.open(browser, view(plan));
    assert.strictEqual(await t.page.locator('.pane').count(), 2);
    for (const row of rowsOf(plan)) {
      const at = await t.spot((+row.lower + +row.upper) / 2, +row.offset + row.size / 2);
      await t.page.mouse.move(at.x, at.y);
      assert.strictEqual(await t.text('#tip b'), row.id);
      assert.match(await t.text('#tip'), new RegExp(`alive from ${row.lower} to ${row.upper}`));
      /* and the picture has the colour there that the table of colours has for it */
      const [painted, said] = await t.page.evaluate(([x, y, id]) => {
        const canvas = document.querySelector('.map canvas'), r = canvas.getBoundingClientRect();
        const p = canvas.getContext('2d').getImageData((x - r.left) * devicePixelRatio, (y - r.top) * devicePixelRatio + 9, 1, 1).data;
        showTab('colours');
        const row = [...document.querySelectorAll('#panel-colours tbody tr')].find((e) => e.firstChild.textContent === id);
        return [`rgb(${p[0]}, ${p[1]}, ${p[2]})`, getComputedStyle(row.querySelector('.swatch')).backgroundColor];
      }, [at.x, at.y, row.id]);
      if (row.size > 1024) assert.strictEqual(painted, said, row.id);
    }
    const nothing = await t.spot(9.5, 30000);
    await t.page.mouse.move(nothing.x, nothing.y);
    assert.ok(await t.page.locator('#tip').isHidden());
    await t.close();
  },

  async 'the peak stands at the peak, and figures are those of berth plan'(browser) {
    const problem = make('small.csv', SMALL), answer = JSON.parse(run('plan', problem, '--json'));
    const t = await Tab.open(browser, view(problem));
    const mark = await t.page.locator('button.peak').boundingBox(), at = await t.spot(answer.binding_time, 0);
    assert.ok(Math.abs(mark.x + mark.width / 2 - at.x) < 1, `${mark.x + mark.width / 2} and ${at.x}`);
    const facts = await t.text('#facts');
    assert.match(facts.replace(/\s+/g, ' '), /Peak 40.0 KiB Lower bound 40.0 KiB Planned 40.0 KiB/);
    assert.strictEqual(answer.peak, 40960);
    assert.match(await t.text('#panel-alive p'), /40.0 KiB in 3 blocks, 100 % of the peak/);
    /* the line of the bound is as high as the curve at the peak */
    const line = await t.page.locator('.line').first().boundingBox();
    assert.ok(Math.abs(line.y - (mark.y + mark.height)) < 6, `${line.y} and ${mark.y + mark.height}`);
    await t.close();
  },

  async 'search finds it'(browser) {
    const plan = path.join(work, 'planned.csv'), t = await Tab.open(browser, view(plan)), row = rowsOf(plan).find((r) => r.id === 'relu1');
    await t.press('/');
    await t.page.keyboard.type('RELU');
    await t.page.waitForFunction(() => document.getElementById('found').textContent === '1');
    await t.press('Enter');
    assert.match(await t.text('#panel-block h3'), /relu1/);
    const frame = await t.page.locator('.frame').first().boundingBox();
    const from = await t.spot(+row.lower, +row.offset + +row.size), to = await t.spot(+row.upper, +row.offset);
    for (const [a, b] of [[frame.x, from.x], [frame.y, from.y], [frame.x + frame.width, to.x], [frame.y + frame.height, to.y]]) assert.ok(Math.abs(a - b) < 3, `${a} and ${b}`);
    await t.page.fill('#search', '>12K');
    await t.page.waitForFunction(() => document.getElementById('found').textContent === '2');
    await t.page.fill('#search', 'no such thing');
    await t.page.waitForFunction(() => document.getElementById('found').textContent === '0');
    await t.close();
  },

  async 'the keyboard reaches everything'(browser) {
    const t = await Tab.open(browser, view(path.join(work, 'planned.csv')));
    const wanted = await t.look(`[...document.querySelectorAll('button, select, input, [tabindex="0"]')]
      .filter((e) => e.offsetParent && e.tabIndex >= 0).length`);
    const seen = new Set();
    for (let k = 0; k < wanted + 3; k++) {
      await t.page.keyboard.press('Tab');
      const name = await t.look(`(() => { const e = document.activeElement; if (e === document.body) return '';
        e.dataset.n = e.dataset.n || String(Math.random()); return e.dataset.n; })()`);
      if (name) seen.add(name);
    }
    assert.strictEqual(seen.size, wanted);
    const map = t.page.locator('.map').first();
    await map.focus();
    const all = await t.look('windowOf()');
    await t.press('+');
    const near = await t.look('windowOf()');
    assert.ok(near.x1 - near.x0 < (all.x1 - all.x0) * 0.8);
    await t.press('ArrowRight');
    assert.ok((await t.look('windowOf()')).x0 > near.x0);
    await t.press('*');
    await t.press('ArrowUp');
    assert.ok((await t.look('windowOf()')).y0 > all.y0);
    await t.press('0');
    assert.deepStrictEqual(await t.look('windowOf()'), all);
    const when = await t.text('#when');
    await t.press(']');
    assert.notStrictEqual(await t.text('#when'), when);
    await t.press('p');
    assert.strictEqual(await t.text('#when'), when);
    await t.press('2');
    await t.press('k');
    const first = await t.text('#panel-block h3');
    await t.press('k');
    assert.notStrictEqual(await t.text('#panel-block h3'), first);
    await t.press('j');
    assert.strictEqual(await t.text('#panel-block h3'), first);
    await t.press('f');
    assert.ok((await t.look('windowOf()')).x1 < all.x1 || (await t.look('windowOf()')).y1 < all.y1);
    for (const [key, panel] of [['1', 'alive'], ['3', 'holes'], ['4', 'stacks'], ['5', 'colours']]) {
      await t.press(key);
      assert.ok(await t.page.locator('#panel-' + panel).isVisible(), panel);
    }
    await t.press('v');
    assert.strictEqual(await t.page.locator('.pane').count(), 1);
    await t.press('t');
    assert.strictEqual(await t.page.locator('#axes [aria-pressed=true]').innerText(), 'Events');
    const theme = await t.look('document.documentElement.dataset.theme');
    await t.press('d');
    assert.notStrictEqual(await t.look('document.documentElement.dataset.theme'), theme);
    await t.press('?');
    assert.ok(await t.page.locator('#keys').isVisible());
    await t.press('Escape');
    assert.ok(await t.page.locator('#keys').isHidden());
    /* a row of the table by Enter */
    await t.press('1');
    await t.page.locator('#panel-alive tr.row').nth(1).focus();
    await t.press('Enter');
    await t.press('2');
    assert.match(await t.text('#panel-block h3'), /\w/);
    await t.close();
  },

  async 'threads have their names'(browser) {
    const t = await Tab.open(browser, view(path.join(__dirname, '../../fuzz/trace/thread_names')));
    await t.look("setColours('thread')");
    await t.press('5');
    const shown = await t.page.locator('#panel-colours td.name').allTextContents();
    assert.deepStrictEqual(shown.sort(), ['thread 1 (io \ufffd\n")', 'thread 8 (io \ufffd\n")']);
    const thread = await t.look('state.space.thread.indexOf(7)');
    await t.look(`choose(${thread})`);
    await t.press('2');
    assert.match(await t.text('#panel-block dl'), /Thread\s+8 \(io/);
    await t.close();
  },

  async 'holes are what is free between live blocks'(browser) {
    const t = await Tab.open(browser, view(make('holes.csv', 'id,lower,upper,size,offset\na,0,10,1000,0\nb,0,10,1000,3000\nc,0,10,500,4500\n')));
    await t.press('3');
    assert.match(await t.text('#panel-holes p >> nth=0'), /2 holes between live blocks: 2.44 KiB free, but no block above 1.95 KiB fits \(20 % fragmented\)/);
    assert.match(await t.text('#panel-holes p >> nth=1'), /No holes/);
    await t.close();
  },

  async 'names cannot become anything but text'(browser) {
    const evil = ['</script><script>window.hacked=1</script>', '<img src=x onerror=window.hacked=1>', '"\'`&lt;\\u003cscript>', '<!--<script>', '\u2028x'];
    const rows = evil.map((name, k) => `"${name.replace(/"/g, '""')}",0,9,${(k + 1) * 4096}`);
    const file = make('<img src=x onerror=window.hacked=1> \'"&.csv', 'id,lower,upper,size\n' + rows.join('\n') + '\n');
    const t = await Tab.open(browser, view(file));
    assert.strictEqual(await t.text('#name'), path.basename(file));
    for (const key of ['2', '3', '4', '5', '1']) await t.press(key);
    const shown = await t.page.locator('#panel-alive td.name').allTextContents();
    assert.deepStrictEqual(shown.sort(), [...evil].sort());
    const at = await t.spot(4, 5000);
    await t.page.mouse.move(at.x, at.y);
    await t.settle();
    assert.strictEqual(await t.look('window.hacked'), undefined);
    assert.strictEqual(await t.page.locator('img').count(), 0);
    assert.ok(!fs.readFileSync(path.join(work, `page${view.count}.html`), 'utf8').includes('<img'));
    const svg = path.join(work, 'evil.svg');
    run('view', file, '--svg', '-o', svg);
    const picture = fs.readFileSync(svg, 'utf8');
    assert.ok(!picture.includes('<img') && !picture.includes('<script'));
    await t.close();
  },

  async 'what is too much is shaded, and said'(browser) {
    let text = 'id,lower,upper,size\n';
    for (let i = 0; i < 20000; i++) text += `b${i},${i},${i + 1 + i % 37},${i % 100 ? 64 : 65536}\n`;
    const t = await Tab.open(browser, view(make('many.csv', text), '--detail', '20K'));
    assert.match(await t.text('#notices'), /blocks of at most .* are shaded, not told one by one/);
    assert.ok(await t.look('state.space.n') < 20000);
    assert.match(await t.text('#facts'), /20\D?000/);
    /* panning draws kept tiles again, not blocks */
    await t.press('+');
    const drawn = await t.look(`(async () => { let n = 0; const render = Map2D.prototype.render; Map2D.prototype.render = function (...a) { n++; return render.apply(this, a); };
      for (let k = 0; k < 40; k++) { pan(k % 2 ? 0.01 : -0.01, 0); await new Promise(requestAnimationFrame); } return n; })()`);
    assert.ok(drawn <= 8, `${drawn} tiles`);
    await t.close();
  },

  async 'it fits 1280 x 720, a phone, light and dark'(browser) {
    const page = view(path.join(work, 'planned.csv'));
    for (const [width, height, scheme] of [[1280, 720, 'light'], [1280, 720, 'dark'], [390, 844, 'light'], [390, 844, 'dark']]) {
      const t = await Tab.open(browser, page, width, height, scheme);
      const [wide, tall, theme] = await t.look('[document.documentElement.scrollWidth, document.documentElement.scrollHeight, document.documentElement.dataset.theme]');
      assert.strictEqual(theme, scheme);
      assert.ok(wide <= width, `${wide} wide at ${width}`);
      if (width > 900) assert.ok(tall <= height, `${tall} tall at ${height}`);
      const map = await t.page.locator('.map').first().boundingBox();
      assert.ok(map.height >= 150 && map.width >= 250, JSON.stringify(map));
      await t.close();
    }
  },

  async 'segments stand behind the blocks, with words and a legend'(browser) {
    const file = snapshot('segments.pickle'), page = view(file);
    for (const scheme of ['light', 'dark']) {
      const t = await Tab.open(browser, page, 1280, 720, scheme);
      const fold = (address) => t.look(`state.space.fold(${address}n)`);
      const pixel = async (time, at) => {
        const spot = await t.spot(time, at);
        return t.page.evaluate(([x, y]) => {
          const canvas = document.querySelector('.map canvas'), r = canvas.getBoundingClientRect();
          return [...canvas.getContext('2d').getImageData((x - r.left) * devicePixelRatio, (y - r.top) * devicePixelRatio, 1, 1).data].slice(0, 3).join();
        }, [spot.x, spot.y]);
      };
      const first = await fold(0x7f0000000000), second = await fold(0x7f0010000000), MiB = 1 << 20;
      const segment = await t.look('[...rgb(css.segment)].slice(0, 3).join()');
      /* the first is there from the start to the end; blocks stand before it */
      assert.strictEqual(await pixel(0.5, first + 1.7 * MiB), segment);
      assert.notStrictEqual(await pixel(2.5, first + 0.25 * MiB), segment);
      /* the second begins before event 1 and goes before event 4 */
      assert.strictEqual(await pixel(2.5, second + 15 * MiB), segment);
      assert.notStrictEqual(await pixel(0.5, second + 15 * MiB), segment);
      assert.notStrictEqual(await pixel(5.5, second + 15 * MiB), segment);
      const words = async (time, at) => {
        const spot = await t.spot(time, at);
        await t.page.mouse.move(spot.x, spot.y);
        return (await t.text('#tip')).replace(/\s+/g, ' ');
      };
      assert.match(await words(2.5, first + 1.7 * MiB), /^segment 2.00 MiB \(2 097 152 bytes\) 1.00 MiB active, 1.00 MiB inactive at event 2.* pool small, stream 0 at 0x7f0000000000 held from event 0 to the end$/);
      assert.match(await words(2.5, second + 15 * MiB), /^segment 20.0 MiB .* 10.0 MiB active, 10.0 MiB inactive at event 2.* stream 7 at 0x7f0010000000 held from event 1 to 4$/);
      assert.match(await words(2.5, second + 5 * MiB), /^f 10.0 MiB/); /* a block comes first */
      await t.press('5');
      assert.match(await t.text('#segment-legend'), /segments, memory held from the driver \(3\)/);
      const line = await t.look("getComputedStyle(document.querySelector('.swatch.segment')).borderTopColor");
      assert.strictEqual(line.match(/\d+/g).join(), await t.look("[...rgb(css['segment-line'])].slice(0, 3).join()"));
      await t.press('3');
      await t.look('setMoment(5)');
      assert.match(await t.text('#panel-holes'), /2 segments held: 4.00 MiB, of them 1.00 MiB active and 3.00 MiB inactive\./);
      assert.match((await t.text('#segments')).replace(/\s+/g, ' '), /2.00 MiB 2.00 MiB at 0x7f0020000000, pool large, private \(0, 3\), stream 0/);
      if (process.env.BERTH_SCREENSHOTS) await t.page.screenshot({ path: path.join(process.env.BERTH_SCREENSHOTS, `segments-${scheme}.png`) });
      await t.close();
    }
    /* without segments there is no legend */
    const t = await Tab.open(browser, view(path.join(work, 'planned.csv')));
    await t.press('5');
    assert.strictEqual(await t.page.locator('#segment-legend').count(), 0);
    await t.close();
  },

  async 'what was refused stands on the curve, and the keyboard goes there'(browser) {
    const log = 'time_ns,thread,event,address,bytes,alignment,label,stream,status\n1000,0,allocate,0x1000,4096,16,weights,,OK\n' +
      '2000,0,allocate,,1048576,16,cache,,OUT_OF_DEVICE_MEMORY\n3000,0,allocate,0x9000,8192,16,weights,,OK\n4000,0,free,0x1000,4096,16,,,OK\n5000,0,allocate,,2048,16,,,OUT_OF_DEVICE_MEMORY\n';
    const page = view(make('refused.csv', log)), t = await Tab.open(browser, page);
    assert.match((await t.text('#facts')).replace(/\s+/g, ' '), /Refused 2$/);
    assert.ok(await t.page.locator('#told').isHidden());
    const red = await t.look('[...rgb(css.refused)].slice(0, 3)'), isRed = async (event) => (await pixel(event)).every((c, k) => Math.abs(c - red[k]) < 8);
    const pixel = (event) => t.page.evaluate((e) => {
      const canvas = document.querySelector('.curve canvas'), v = windowOf(), x = Math.round((e - v.x0) / (v.x1 - v.x0) * canvas.width);
      return [...canvas.getContext('2d').getImageData(x, canvas.height - Math.round(6 * devicePixelRatio), 1, 1).data].slice(0, 3);
    }, event);
    assert.ok(await isRed(1));
    assert.ok(!await isRed(2));
    await t.press('O');
    assert.strictEqual(await t.text('#told'), 'refused: 1.00 MiB for cache');
    assert.match(await t.text('#when'), /event 0/);
    await t.press('o');
    assert.strictEqual(await t.text('#told'), 'refused: 2.00 KiB');
    await t.press('o');
    assert.strictEqual(await t.text('#told'), 'refused: 1.00 MiB for cache');
    await t.press('p');
    assert.ok(await t.page.locator('#told').isHidden());
    await t.press('5');
    assert.match(await t.text('#told-legend'), /refused allocations \(2\)/);
    const box = await t.page.locator('.curve').first().boundingBox(), w = await t.look('windowOf()');
    await t.page.mouse.move(box.x + (1 - w.x0) / (w.x1 - w.x0) * box.width, box.y + 40);
    assert.match(await t.text('#tip'), /refused: 1.00 MiB for cache\s+at event 0/);
    await t.close();
    /* a finger has no pointer that stands over it */
    const phone = await Tab.open(browser, page, 390, 844, 'light', { hasTouch: true });
    const there = await phone.page.locator('.curve').first().boundingBox(), v = await phone.look('windowOf()');
    await phone.page.touchscreen.tap(there.x + (1 - v.x0) / (v.x1 - v.x0) * there.width, there.y + 40);
    await phone.settle();
    assert.match(await phone.text('#tip'), /refused: 1.00 MiB for cache/);
    await phone.close();
  },

  async 'scales tell their places apart, and names stay in their blocks'(browser) {
    const written = `(async () => { const list = [], write = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (words, x, ...more) { list.push([this.canvas.parentNode.className, words, x + this.measureText(words).width, this.canvas.width]); return write.call(this, words, x, ...more); };
      for (const p of panes) p.curveKey = ''; drawAll(); return list; })()`;
    const rows = [0, 1, 2, 3, 4, 5].map((k) => `${1000 + k},0,allocate,0x${(0x7f0000000000 + k * 2 ** 27).toString(16)},${2 ** 27},16,${'very::long<name'.repeat(12)}${k},,OK`);
    const file = make('far.csv', 'time_ns,thread,event,address,bytes,alignment,label,stream,status\n' + rows.join('\n') + '\n');
    for (const [width, height] of [[1280, 720], [390, 844]]) {
      const t = await Tab.open(browser, view(file), width, height);
      const drawn = await t.look(written);
      const scale = drawn.filter(([where]) => where === 'scale-map').map(([, words]) => words), first = scale.slice(0, scale.indexOf(scale.find((w) => w === '0\u00a0B')));
      assert.ok(first.length > 3 && new Set(first).size === first.length, first.join(' '));
      if (width > 900) assert.ok(first.some((words) => words.startsWith('0x7f00')), first.join(' '));
      const named = drawn.filter(([where, words]) => where.startsWith('map') && words.includes('…'));
      assert.ok(named.length, 'names are cut');
      for (const [, words, right, wide] of named) assert.ok(right <= wide, `${words} ends at ${right} of ${wide}`);
      await t.close();
    }
    const far = await Tab.open(browser, view(make('huge.csv', 'id,lower,upper,size\n' + [0, 1, 2, 3, 4, 5, 6, 7].map((k) =>
      `b${k},${-1e15 + k * 1e12},${-1e15 + (k + 4) * 1e12},${2 ** 51 + k}\n`).join(''))));
    const places = await far.look('[...state.space.planned]'), peak = await far.look('state.space.raw.plan.peak_bytes');
    assert.ok(places.every((at, k) => at >= 0 && at + 2 ** 51 + k <= peak + 64), 'offsets beyond 2^53: ' + places);
    const ends = (await far.look(written)).filter(([where]) => where === 'scale-x');
    assert.ok(ends.length > 1);
    for (let k = 1; k < ends.length; k++) assert.ok(ends[k][2] - ends[k - 1][2] > 40, 'words of the scale lie on each other');
    await far.close();
    const t = await Tab.open(browser, view(make('few.csv', 'id,lower,upper,size\nonly,2,5,4096\n')));
    const counts = (await t.look(written)).filter(([where]) => where === 'scale-x').map(([, words]) => words);
    assert.deepStrictEqual(counts, ['2', '3', '4', '5'], 'what is counted is whole');
    await t.close();
  },

  async 'blocks with names of their own have colours, and one block is one'(browser) {
    let text = 'id,lower,upper,size\n';
    for (let i = 0; i < 300; i++) text += `b${i},${i},${i + 3},4096\n`;
    let t = await Tab.open(browser, view(make('own.csv', text)));
    assert.strictEqual(await t.look('state.space.rank.includes(OTHERS)'), false);
    await t.press('5');
    assert.match(await t.text('#panel-colours'), /and 240 more$/);
    await t.close();
    t = await Tab.open(browser, view(make('one.csv', 'id,lower,upper,size\nonly,0,9,4096\n')));
    assert.match(await t.text('#panel-alive p'), /4.00 KiB in 1 block, 100 % of the peak/);
    await t.close();
  },

  async 'a recording has stacks, and its live bytes add up'(browser) {
    const trace = path.join(work, 'app.trace');
    const done = spawnSync(berth, ['record', '-q', '-o', trace, '--', '/bin/ls', '-laR', '/etc'], { encoding: 'utf8', maxBuffer: 1 << 28 });
    assert.ok(fs.existsSync(trace), 'nothing was recorded: ' + done.stderr.trim());
    const t = await Tab.open(browser, view(trace));
    assert.match(await t.text('#panel-alive p'), /100 % of the peak/);
    await t.press('4');
    assert.ok(await t.page.locator('.flame button').count() > 3);
    assert.match(await t.text('.flame button >> nth=0'), /all 100 %/);
    /* what the page counts from blocks is what the command counted from events */
    const [counted, told] = await t.look('[state.space.live.of(0, doc.events - 1)[0], state.space.raw.peak.bytes]');
    assert.strictEqual(counted, told);
    await t.close();
  },
};

(async () => {
  const browser = await chromium.launch({ executablePath: browserPath, args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'] });
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check(browser);
      console.log('ok   ' + name);
    } catch (e) {
      failed++;
      console.log('FAIL ' + name + '\n' + e.stack);
    }
  }
  await browser.close();
  fs.rmSync(work, { recursive: true });
  process.exit(failed ? 1 : 0);
})();
