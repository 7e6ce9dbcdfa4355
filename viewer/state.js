/* What all parts of the page share: the document, what is chosen, and how elements are made. Texts from the document go through textContent only. */

const $ = (id) => document.getElementById(id);
function element(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {}))
    if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== false) e.setAttribute(key, value);
  e.append(...children.filter((c) => c !== undefined && c !== null));
  return e;
}

/* Fills an element anew; what is undefined is nothing. */
function refill(e, ...children) { e.replaceChildren(...children.filter((c) => c !== undefined)); }

/* After Okabe and Ito: told apart with any colour vision; then lighter ones. What is none of the first is grey. */
const PALETTE = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442', '#8a6bbf',
  '#7fb8d8', '#f2cf80', '#80cfb9', '#e5bcd3', '#aad9f4', '#eaaf80', '#9c8f2c', '#c4b5df'];
const OTHERS = PALETTE.length, FADED = OTHERS + 1;

const doc = JSON.parse($('document').textContent);
const names = new Names(doc), times = new Times(doc), shared = { times, names };
const spaces = new Array(doc.spaces.length);
const state = { space: null, side: 'both', axis: doc.has_times ? 'events' : 'time', view: null, moment: 0, chosen: -1, hover: -1,
  tab: 'alive', sort: 'size', colours: 'label', matches: null, matchList: [], match: -1, flame: 'peak', flameRoot: 0, only: -1, y: {} };
let panes = [], pending = false, css = {};
