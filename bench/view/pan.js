/* How long a frame takes while one pans over a page of `berth view`, headless and drawn by software.
 *
 * usage: node bench/view/pan.js PLAYWRIGHT_CORE PAGE.html      PLAYWRIGHT_CORE: the unpacked npm package
 *
 * Prints, at several zooms, the median time of a frame and of the work in it. Exits 1 if a median frame takes 33 ms or more. */
'use strict';
const path = require('path');
const [driver, page] = process.argv.slice(2);
if (!page) {
  console.error('usage: node pan.js PLAYWRIGHT_CORE PAGE.html');
  process.exit(2);
}
const { chromium } = require(path.resolve(driver));

/* In the page: pans to and fro, a hundredth of what is shown a frame, then once more counting the work alone. */
async function measure(zoom) {
  fit();
  zoomX(zoom, state.space.span / 2);
  for (let k = 0; k < 40; k++) await new Promise(requestAnimationFrame);
  const frames = [], work = [], middle = (list) => list.sort((a, b) => a - b)[list.length >> 1];
  let last = performance.now();
  for (let k = 0; k < 200; k++) {
    pan(k < 100 ? 0.01 : -0.01, 0);
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
  }
  for (let k = 0; k < 100; k++) {
    pan(k < 50 ? 0.02 : -0.02, 0);
    const before = performance.now();
    drawAll();
    for (const p of panes) p.map.firstChild.getContext('2d').getImageData(0, 0, 1, 1); /* waits for what was drawn */
    work.push(performance.now() - before);
    await new Promise(requestAnimationFrame);
  }
  return [middle(frames), middle(work)];
}

(async () => {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'] });
  const tab = await (await browser.newContext({ viewport: { width: 1280, height: 720 } })).newPage();
  const before = Date.now();
  await tab.goto('file://' + path.resolve(page));
  console.log(`${await tab.evaluate(() => state.space.n)} blocks, opened in ${Date.now() - before} ms`);
  let slow = false;
  for (const zoom of [0.9, 0.3, 0.01]) {
    const [frame, work] = await tab.evaluate(measure, zoom);
    console.log(`${(100 * zoom).toFixed(0).padStart(3)} % of it shown: median frame ${frame.toFixed(1)} ms, work ${work.toFixed(1)} ms`);
    slow = slow || frame >= 33;
  }
  await browser.close();
  process.exit(slow ? 1 : 0);
})();
