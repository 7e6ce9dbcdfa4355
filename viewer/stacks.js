/* The panel of stacks: a flame graph. */

/* The stacks of what is alive at the peak, or at the moment, as a flame graph with the outermost callers on top. */
function flameTree(event) {
  const s = state.space, root = { name: 'all', bytes: 0, below: new Map() };
  for (const i of s.aliveAt(event)) {
    root.bytes += s.size[i];
    let at = root;
    const path = s.stack[i] ? names.stack(s.stack[i]).reverse().map((f) => names.frame(f)) : [];
    if (s.label[i]) path.push(names.texts[s.label[i]]);
    for (const name of path.length ? path : ['without a name']) {
      let next = at.below.get(name);
      if (!next) at.below.set(name, next = { name, bytes: 0, below: new Map(), above: at });
      next.bytes += s.size[i];
      at = next;
    }
  }
  return root;
}
function fillStacks() {
  const s = state.space, event = state.flame === 'peak' ? s.raw.peak.event : state.moment;
  const key = [state.flame === 'peak' ? 'peak' : event, doc.spaces.indexOf(s.raw)].join();
  if (fillStacks.key !== key) { fillStacks.key = key; fillStacks.tree = flameTree(event); fillStacks.root = fillStacks.tree; }
  const tree = fillStacks.tree, root = fillStacks.root, panel = $('panel-stacks'), box = element('div', { class: 'flame', role: 'tree', 'aria-label': 'Call stacks by live bytes' });
  const which = element('div', { class: 'segmented', role: 'group' }, ...[['peak', 'The peak'], ['moment', 'The moment']].map(([value, words]) =>
    element('button', { 'aria-pressed': state.flame === value, onclick: () => { state.flame = value; fillPanels(); } }, words)));
  let deepest = 0;
  const hue = (name) => { let h = 0; for (let k = 0; k < name.length; k++) h = (h * 31 + name.charCodeAt(k)) >>> 0; return `hsl(${28 + h % 24} ${70 + h % 17}% ${66 + (h >> 5) % 14}%)`; };
  const put = (node, left, width, depth, dim) => {
    const part = tree.bytes ? node.bytes / tree.bytes : 0;
    const b = element('button', { role: 'treeitem', class: dim ? 'dim' : undefined, title: `${node.name}\n${sizeWords(node.bytes)}, ${(100 * part).toFixed(1)} %`, onclick: () => { fillStacks.root = node; fillPanels(); } }, `${node.name} ${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`);
    Object.assign(b.style, { left: left * 100 + '%', width: width * 100 + '%', top: depth * 20 + 'px', background: node === tree ? 'hsl(210 25% 80%)' : hue(node.name) });
    box.append(b);
    deepest = Math.max(deepest, depth);
  };
  const above = [];
  for (let n = root.above; n; n = n.above) above.unshift(n);
  above.forEach((n, k) => put(n, 0, 1, k, true));
  const walk = (node, left, width, depth) => {
    put(node, left, width, depth, false);
    let x = left;
    for (const next of [...node.below.values()].sort((a, b) => b.bytes - a.bytes)) {
      const w = node.bytes ? width * next.bytes / node.bytes : 0;
      if (w > 0.006 && depth < 90) walk(next, x, w, depth + 1);
      x += w;
    }
  };
  walk(root, 0, 1, above.length);
  box.style.height = (deepest + 1) * 20 + 'px';
  panel.replaceChildren(which, element('p', {}, `${sizeWords(tree.bytes)} at ${whenWords(event)}` + (s.complete ? '' : ', of the blocks that are told one by one') + (s.raw.columns.stack ? '' : '. No call stacks were recorded; by label.')), box);
}
