/* Moving: zoom and pan, by wheel, pointer and touch; and the tip under the pointer. */

function setView(x0, x1) {
  const s = state.space, least = s.span / 2 ** 22 + (s.axis === 'events' ? 2 : 0), margin = 0.02;
  let span = Math.max(Math.min(least, s.span), Math.min(s.span * (1 + 2 * margin), x1 - x0));
  const middle = (x0 + x1) / 2;
  x0 = Math.max(-s.span * margin, Math.min(s.span * (1 + margin) - span, middle - span / 2));
  state.view = { x0, x1: x0 + span };
  redraw();
}
function setHeight(from, to) {
  const all = state.y.tallest, span = Math.max(Math.min(16, all), Math.min(all * 1.04, to - from)), middle = (from + to) / 2;
  from = Math.max(-all * 0.01, Math.min(all * 1.03 - span, middle - span / 2));
  Object.assign(state.y, { from, to: from + span });
  redraw();
}
function fitX() { const s = state.space, [from, to] = s.extent(), margin = (to - from) * 0.005; setView(from - margin, to + margin); }
function fit() { fitX(); setHeight(-state.y.tallest * 0.005, state.y.tallest * 1.015); }
function zoomX(factor, x) { const v = state.view; setView(x - (x - v.x0) * factor, x + (v.x1 - x) * factor); }
function zoomY(factor, y) { const v = state.y; setHeight(y - (y - v.from) * factor, y + (v.to - y) * factor); }
function pan(dx, dy) {
  const v = state.view;
  if (dx) setView(v.x0 + dx * (v.x1 - v.x0), v.x1 + dx * (v.x1 - v.x0));
  if (dy) setHeight(state.y.from + dy * (state.y.to - state.y.from), state.y.to + dy * (state.y.to - state.y.from));
}
/* Moves the picture so that a moment, and a block, can be seen. */
function reveal(event, block) {
  const s = state.space, v = state.view, x = s.xOf(event), wide = v.x1 - v.x0;
  if (x < v.x0 || x > v.x1) setView(x - wide / 2, x + wide / 2);
  if (block < 0 || !panes[0].picture) return;
  const at = panes[0].picture.places[block], y = state.y, tall = y.to - y.from;
  if (at + s.size[block] < y.from || at > y.to) setHeight(at + s.size[block] / 2 - tall / 2, at + s.size[block] / 2 + tall / 2);
}
function fillWith(i) {
  const s = state.space;
  if (i < 0) return;
  const life = s.x1[i] - s.x0[i], at = panes[0].picture ? panes[0].picture.places[i] : 0;
  setView(s.x0[i] - life * 0.3, s.x1[i] + life * 0.3);
  setHeight(at - s.size[i] * 1.5, at + s.size[i] * 2.5);
}

function listen(p) {
  const fingers = new Map();
  let moved = 0, spread = 0;
  const spot = (e, parent) => {
    const r = parent.getBoundingClientRect(), v = windowOf();
    return { x: v.x0 + (e.clientX - r.left) / r.width * (v.x1 - v.x0), y: v.y1 - (e.clientY - r.top) / r.height * (v.y1 - v.y0),
      perX: (v.x1 - v.x0) / r.width, perY: (v.y1 - v.y0) / r.height };
  };
  const blockUnder = (e) => {
    if (!p.picture) return -1;
    const at = spot(e, p.map);
    return state.space.blockAt(at.x, at.y, at.perX * 1.5, at.perY * 1.5, p.picture.places);
  };
  const segmentUnder = (e) => () => {
    const at = spot(e, p.map);
    return p.picture && !p.planned ? segmentTip(state.space, at.x, at.y) : null;
  };
  const toldUnder = (e) => () => {
    const at = spot(e, p.curve);
    return toldTip(at.x, at.perX * 5);
  };
  for (const parent of [p.map, p.curve]) {
    const behind = parent === p.map ? segmentUnder : toldUnder;
    parent.addEventListener('wheel', (e) => {
      e.preventDefault();
      const at = spot(e, parent), factor = Math.exp(Math.max(-60, Math.min(60, e.deltaY || e.deltaX)) * 0.004);
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY) && !e.shiftKey) pan(e.deltaX / p.map.clientWidth, 0);
      else {
        if (!e.shiftKey || e.ctrlKey) zoomX(factor, at.x);
        if ((e.shiftKey || e.ctrlKey) && parent === p.map) zoomY(factor, at.y);
      }
    }, { passive: false });
    parent.addEventListener('pointerdown', (e) => {
      if (e.target.closest('button')) return;
      fingers.set(e.pointerId, e);
      parent.setPointerCapture(e.pointerId);
      moved = spread = 0;
    });
    parent.addEventListener('pointermove', (e) => {
      const before = fingers.get(e.pointerId);
      if (!before) { hoverAt(parent === p.map ? blockUnder(e) : -1, e, behind(e)); return; }
      fingers.set(e.pointerId, e);
      if (fingers.size === 2) {
        const [a, b] = [...fingers.values()], now = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
        if (spread) zoomX(spread / now, spot({ clientX: (a.clientX + b.clientX) / 2, clientY: a.clientY }, parent).x);
        spread = now;
        moved = 99;
        return;
      }
      const dx = e.clientX - before.clientX, dy = e.clientY - before.clientY;
      moved += Math.abs(dx) + Math.abs(dy);
      if (moved < 4) return;
      parent.classList.add('dragging');
      hoverAt(-1);
      pan(-dx / parent.clientWidth, parent === p.map && e.pointerType === 'mouse' ? dy / parent.clientHeight : 0);
    });
    const up = (e) => {
      if (!fingers.delete(e.pointerId)) return;
      parent.classList.remove('dragging');
      if (e.type !== 'pointerup' || moved >= 4) return;
      const i = parent === p.map ? blockUnder(e) : -1;
      setMoment(Math.floor(state.space.eventAt(spot(e, parent).x) + 1e-6));
      if (i >= 0) choose(i);
      if (e.pointerType !== 'mouse') hoverAt(i, e, behind(e));
    };
    parent.addEventListener('pointerup', up);
    parent.addEventListener('pointercancel', up);
    parent.addEventListener('pointerleave', () => hoverAt(-1));
  }
}
/* `behind` gives the words of what lies there where no block is. */
function hoverAt(i, e, behind) {
  if (i !== state.hover) { state.hover = i; redraw(); }
  const words = i >= 0 ? blockTip(i) : behind && behind();
  if (words) showTip(words, e);
  else $('tip').hidden = true;
}
function blockTip(i) {
  const s = state.space;
  const stack = s.stack[i] ? names.stack(s.stack[i]).slice(0, 6) : [];
  return [element('b', {}, nameOf(i) || 'block ' + i), element('div', {}, `${sizeWords(s.size[i])} (${countWords(s.size[i])} bytes)`),
    element('div', {}, lifeWords(i)), ...placesWords(i).map((words) => element('div', {}, words)),
    ...stack.map((f) => element('div', {}, names.frame(f)))];
}
function showTip(words, e) {
  const tip = $('tip');
  tip.replaceChildren(...words);
  tip.hidden = false;
  const wide = tip.offsetWidth, tall = tip.offsetHeight;
  tip.style.left = Math.max(4, Math.min(innerWidth - wide - 4, e.clientX + 14 + wide > innerWidth ? e.clientX - wide - 14 : e.clientX + 14)) + 'px';
  tip.style.top = Math.max(4, Math.min(innerHeight - tall - 4, e.clientY + 16)) + 'px';
}
