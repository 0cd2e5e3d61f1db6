// The parts that all views share: markup, routes, polling, tables, plots, forms and messages.

import { h, render, Fragment } from "./vendor/preact.js";
import { useEffect, useRef, useState, useCallback, useMemo } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { get, request } from "./api.js";

export const html = htm.bind(h);
export { render, Fragment, useEffect, useRef, useState, useCallback, useMemo };

// ---- routes: `#/view/name?query`; every view has an address that can be shared

export function parseHash(hash) {
  const [where, query = ""] = hash.replace(/^#\/?/, "").split("?");
  return { parts: where.split("/").filter((each) => each !== "").map(decodeURIComponent), query: new URLSearchParams(query) };
}

/** The address of a view: names of any kind are encoded. */
export function link(...parts) {
  return `#/${parts.map((each) => encodeURIComponent(each)).join("/")}`;
}

export function useRoute() {
  const [route, setRoute] = useState(() => parseHash(location.hash));
  useEffect(() => {
    const change = () => setRoute(parseHash(location.hash));
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return route;
}

/** Change parameters of the present address without a new entry of the history. */
export function setQuery(changes) {
  const { parts, query } = parseHash(location.hash);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(null, "", `${link(...parts)}${text ? `?${text}` : ""}`);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

// ---- data: asked again every few seconds while the page is visible

/** Return [data, error, again] for a path of the API, asked every `seconds` seconds. */
export function usePoll(where, seconds = 5) {
  const [state, setState] = useState({ where: null, data: null, error: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (where === null) return undefined;
    let over = false;
    let timer = 0;
    const ask = async () => {
      if (!document.hidden) {
        try {
          const data = await get(where);
          if (!over) setState({ where, data, error: null });
        } catch (error) {
          if (!over) setState((before) => ({ where, data: before.where === where ? before.data : null, error }));
        }
      }
      if (!over && seconds > 0) timer = setTimeout(ask, seconds * 1000);
    };
    ask();
    return () => { over = true; clearTimeout(timer); };
  }, [where, seconds, turn]);
  const again = useCallback(() => setTurn((number) => number + 1), []);
  const own = state.where === where;
  return [own ? state.data : null, own ? state.error : null, again];
}

// ---- numbers

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value) {
  if (typeof value !== "number" || value < 0) return "?";
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export const count = (value) => (typeof value === "number" ? value.toLocaleString("en") : "–");

export const rate = (value) => (typeof value === "number" ? `${value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(1)}/s` : "–");

export function duration(seconds) {
  if (typeof seconds !== "number") return "–";
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export const rateOf = (object, name) => object?.message_stats?.[`${name}_details`]?.rate ?? 0;

/** A value of any kind as short text, such as an argument. */
export const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));

// ---- messages

export const Problem = ({ error }) => (error ? html`<p class="problem" role="alert">${error.message}</p>` : null);

export const Badge = ({ kind = "plain", children }) => html`<span class=${`badge ${kind}`}>${children}</span>`;

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

// ---- tables

/**
 * A table. Columns: { title, show(row), sort?, numeric?, className? }. `sorting` is [field, descending], `onSort` gets
 * the field of a clicked heading.
 */
export function Table({ caption, columns, rows, keyOf, sorting, onSort, rowClass }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
    <caption class="hidden">${caption}</caption>
    <thead><tr>${columns.map((column) => {
      const active = sorting && column.sort && sorting[0] === column.sort;
      const order = active ? (sorting[1] ? "descending" : "ascending") : undefined;
      return html`<th scope="col" aria-sort=${order} class=${column.numeric ? "number" : ""}>${
        column.sort && onSort
          ? html`<button type="button" class="sort" onClick=${() => onSort(column.sort)}>${column.title}${
              active ? html`<span aria-hidden="true">${sorting[1] ? " ▼" : " ▲"}</span>` : ""}</button>`
          : column.title || html`<span class="hidden">Actions</span>`}</th>`;
    })}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${keyOf(row)} class=${rowClass ? rowClass(row) : ""}>${columns.map(
      (column, place) => html`<${place === 0 ? "th" : "td"} scope=${place === 0 ? "row" : undefined} class=${column.numeric ? "number" : column.className ?? ""}>${column.show(row)}<//>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** The search, order and page of a list that the broker pages; the address keeps them. */
export function usePagedList(base, defaults = {}) {
  const { query } = useRoute();
  const wanted = {
    name: query.get("name") ?? "",
    regex: query.get("regex") === "true",
    sort: query.get("sort") ?? defaults.sort ?? "",
    reverse: (query.get("reverse") ?? defaults.reverse ?? "false") === "true",
    page: Math.max(1, Number(query.get("page") ?? 1) || 1),
  };
  const parameters = new URLSearchParams({ page: wanted.page, page_size: defaults.size ?? 50 });
  if (wanted.name) parameters.set("name", wanted.name);
  if (wanted.regex) parameters.set("use_regex", "true");
  if (wanted.sort) { parameters.set("sort", wanted.sort); parameters.set("sort_reverse", wanted.reverse); }
  if (defaults.columns) parameters.set("columns", defaults.columns);
  if (defaults.having) parameters.set("having", defaults.having);
  const [data, error, again] = usePoll(base === null ? null : `${base}?${parameters}`, defaults.seconds ?? 5);
  useEffect(() => {
    if (error?.message.startsWith("Page out of range")) setQuery({ page: null });
  }, [error]);
  const onSort = (field) => setQuery(
    wanted.sort === field ? { sort: field, reverse: !wanted.reverse, page: null } : { sort: field, reverse: field !== "name", page: null });
  return { data, error, again, wanted, onSort, sorting: [wanted.sort, wanted.reverse] };
}

export function Search({ wanted, label, total }) {
  const [text, setText] = useState(wanted.name);
  const timer = useRef(0);
  useEffect(() => { setText(wanted.name); }, [wanted.name]);
  const change = (event) => {
    const value = event.target.value;
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ name: value, page: null }), 250);
  };
  return html`<form class="search" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label>${label} <input type="search" data-search value=${text} onInput=${change} /></label>
    <label class="check"><input type="checkbox" checked=${wanted.regex} onChange=${(event) => setQuery({ regex: event.target.checked ? "true" : null, page: null })} /> regular expression</label>
    ${total === undefined ? "" : html`<span class="total" role="status">${total}</span>`}
  </form>`;
}

export function Pages({ data }) {
  if (!data || data.page_count <= 1) return null;
  const go = (page) => setQuery({ page: page === 1 ? null : page });
  return html`<nav class="pages" aria-label="Pages">
    <button type="button" disabled=${data.page <= 1} onClick=${() => go(data.page - 1)}>Previous</button>
    <span>Page ${data.page} of ${count(data.page_count)}</span>
    <button type="button" disabled=${data.page >= data.page_count} onClick=${() => go(data.page + 1)}>Next</button>
  </nav>`;
}

// ---- plots

const SPANS = { minute: [60, 5], hour: [3600, 60], day: [86400, 1800] };
export const SPAN_NAMES = Object.keys(SPANS);

/** The parameters of the API for histories over a span. */
export function historyOf(span, kinds) {
  const [age, incr] = SPANS[span] ?? SPANS.minute;
  return kinds.map((kind) => `${kind}_age=${age}&${kind}_incr=${incr}`).join("&");
}

/** Turn the samples of counters into rates, and those of depths into values; the oldest first. */
function seriesOf(details, isRate) {
  const samples = [...(details?.samples ?? [])].reverse();
  const points = new Map();
  samples.forEach((each, place) => {
    if (!isRate) points.set(each.timestamp / 1000, each.sample);
    else if (place > 0) {
      const before = samples[place - 1];
      points.set(each.timestamp / 1000, Math.max(0, ((each.sample - before.sample) * 1000) / (each.timestamp - before.timestamp)));
    }
  });
  return points;
}

const COLOURS = ["#2563eb", "#16a34a", "#d97706", "#dc2626", "#7c3aed", "#0891b2"];

/** A plot of `lines`: [{ title, details, isRate }], with the same values as a table for screen readers. */
export function Plot({ title, lines, unit }) {
  const place = useRef(null);
  const plot = useRef(null);
  const series = lines.map((each) => seriesOf(each.details, each.isRate));
  const times = [...new Set(series.flatMap((each) => [...each.keys()]))].sort((a, b) => a - b);
  const data = [times, ...series.map((each) => times.map((time) => each.get(time) ?? null))];
  const names = lines.map((each) => each.title).join("|");
  useEffect(() => {
    const width = () => Math.max(200, place.current.clientWidth);
    const style = getComputedStyle(document.documentElement);
    const axis = { stroke: style.getPropertyValue("--muted").trim(), grid: { stroke: style.getPropertyValue("--line").trim(), width: 1 }, ticks: { show: false } };
    const options = {
      width: width(),
      height: 180,
      legend: { live: true },
      cursor: { y: false },
      scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
      axes: [axis, { ...axis, size: 60, values: (_, values) => values.map((value) => (unit === "bytes" ? bytes(value) : value.toLocaleString("en"))) }],
      series: [{}, ...lines.map((each, number) => ({ label: each.title, stroke: COLOURS[number % COLOURS.length], width: 1.5, points: { show: false } }))],
    };
    plot.current = new uPlot(options, data, place.current);
    const observer = new ResizeObserver(() => plot.current.setSize({ width: width(), height: 180 }));
    observer.observe(place.current);
    return () => { observer.disconnect(); plot.current.destroy(); };
  }, [names, unit]);
  useEffect(() => { plot.current?.setData(data); });
  const latest = lines.map((each, number) => `${each.title} ${count(Math.round((data[number + 1].at(-1) ?? 0) * 10) / 10)}`).join(", ");
  return html`<figure class="plot"><figcaption>${title}</figcaption>
    <div ref=${place} role="img" aria-label=${`${title}: now ${latest}`}></div>
    ${times.length < 2 ? html`<p class="empty">The history begins now.</p>` : ""}
  </figure>`;
}

export function SpanChoice({ span, onChange, names = SPAN_NAMES }) {
  return html`<fieldset class="choice"><legend class="hidden">Span of the plots</legend>${names.map((name) => html`
    <label><input type="radio" name="span" checked=${span === name} onChange=${() => onChange(name)} /> last ${name}</label>`)}</fieldset>`;
}

// ---- forms

/** Return [busy, error, done, run]: `run(action)` awaits an action and keeps its error or message. */
export function useAction() {
  const [state, setState] = useState({ busy: false, error: null, done: "" });
  const run = useCallback(async (action, message = "") => {
    setState({ busy: true, error: null, done: "" });
    try {
      const said = await action();
      setState({ busy: false, error: null, done: typeof said === "string" ? said : message });
      return true;
    } catch (error) {
      setState({ busy: false, error, done: "" });
      return false;
    }
  }, []);
  return [state.busy, state.error, state.done, run];
}

export const Outcome = ({ error, done }) => html`<div aria-live="polite"><${Problem} error=${error} />${done ? html`<p class="done">${done}</p>` : ""}</div>`;

/** A part of a view that can be opened; a refresh does not close it. */
export function Section({ title, open = false, children, id }) {
  const [isOpen, setOpen] = useState(open);
  return html`<section class="part" id=${id}><h2><button type="button" class="toggle" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}><span aria-hidden="true">${isOpen ? "▾" : "▸"}</span> ${title}</button></h2>${isOpen ? html`<div class="body">${children}</div>` : ""}</section>`;
}

/** A dialog that asks before something is changed for good. `children` say what depends on it. */
export function Confirm({ title, verb, onConfirm, onClose, children, expected }) {
  const dialog = useRef(null);
  const [busy, error, , run] = useAction();
  const [typed, setTyped] = useState("");
  useEffect(() => { dialog.current.showModal(); }, []);
  const confirm = async (event) => {
    event.preventDefault();
    if (await run(onConfirm)) onClose(true);
  };
  return html`<dialog ref=${dialog} aria-labelledby="confirm-title" onClose=${() => onClose(false)}>
    <form onSubmit=${confirm}>
      <h2 id="confirm-title">${title}</h2>
      ${children}
      ${expected === undefined ? "" : html`<label>Type <strong class="name">${expected}</strong> to confirm <input value=${typed} onInput=${(event) => setTyped(event.target.value)} autocomplete="off" /></label>`}
      <${Problem} error=${error} />
      <p class="actions"><button type="button" onClick=${() => dialog.current.close()}>Cancel</button>
      <button type="submit" class="danger" disabled=${busy || (expected !== undefined && typed !== expected)}>${verb}</button></p>
    </form>
  </dialog>`;
}

/** A button that asks in a dialog before it acts. */
export function AskingButton({ label, title, verb = label, act, after, children, expected, kind = "danger", disabled }) {
  const [open, setOpen] = useState(false);
  return html`<button type="button" class=${kind} disabled=${disabled} onClick=${() => setOpen(true)}>${label}</button>
    ${open ? html`<${Confirm} title=${title} verb=${verb} expected=${expected} onConfirm=${act} onClose=${(done) => { setOpen(false); if (done && after) after(); }}>${children}<//>` : ""}`;
}

/** Fields by name from a form: text, number, checkbox. Empty fields are left out. */
export function fieldsOf(form) {
  const fields = {};
  for (const element of form.elements) {
    if (!element.name || element.disabled) continue;
    if (element.type === "checkbox") fields[element.name] = element.checked;
    else if (element.type === "radio") { if (element.checked) fields[element.name] = element.value; }
    else if (element.value !== "") fields[element.name] = element.type === "number" ? Number(element.value) : element.value;
  }
  return fields;
}

/** A JSON object from a text field. Throws an error that names the field. */
export function objectOf(text, name) {
  if (!text || text.trim() === "") return {};
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`${name}: ${error.message}`);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error(`${name} is not a JSON object`);
  return value;
}

export const Field = ({ label, hint, children }) => html`<label class="field"><span>${label}${hint ? html`<small>${hint}</small>` : ""}</span>${children}</label>`;

/** Names and values, such as arguments. */
export function Facts({ facts }) {
  return html`<dl class="facts">${facts.filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

export const vhostText = (vhost) => html`<span class="name">${vhost}</span>`;

export { request };
