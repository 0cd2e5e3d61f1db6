// Policies and operator policies; a pattern shows what it matches while it is typed.

import { html, useState, useEffect, useRef, usePoll, Problem, Table, Badge, Section, link, count, Empty, AskingButton, useAction, Outcome, Field, fieldsOf, objectOf, shown } from "../parts.js";
import { request, get, path } from "../api.js";

function Matches({ vhost, pattern, applyTo }) {
  const [state, setState] = useState({ found: null, error: null });
  const turn = useRef(0);
  useEffect(() => {
    if (!pattern || !vhost) { setState({ found: null, error: null }); return undefined; }
    const own = ++turn.current;
    const timer = setTimeout(async () => {
      try {
        const found = await get(`policy-matches/${path(vhost)}?${new URLSearchParams({ pattern, "apply-to": applyTo })}`);
        if (own === turn.current) setState({ found, error: null });
      } catch (error) {
        if (own === turn.current) setState({ found: null, error });
      }
    }, 250);
    return () => clearTimeout(timer);
  }, [vhost, pattern, applyTo]);
  const { found, error } = state;
  return html`<div class="wide" aria-live="polite"><${Problem} error=${error} />${found ? html`<p>Matches ${count(found.queue_count)} queues and ${count(found.exchange_count)} exchanges${found.queues.length + found.exchanges.length ? ": " : "."}${[...found.queues.slice(0, 12), ...found.exchanges.slice(0, 6)].map((name) => html`<${Badge}>${name}<//>`)}${found.queue_count > 12 ? " …" : ""}</p>` : ""}</div>`;
}

function PolicyForm({ again }) {
  const [vhosts] = usePoll("vhosts?columns=name", 60);
  const [vhost, setVhost] = useState("/");
  const [pattern, setPattern] = useState("");
  const [applyTo, setApplyTo] = useState("all");
  const [busy, error, done, run] = useAction();
  const submit = (event) => {
    event.preventDefault();
    const fields = fieldsOf(event.target);
    run(async () => {
      await request("PUT", `${fields.operator ? "operator-policies" : "policies"}/${path(vhost, fields.name)}`, { pattern, "apply-to": applyTo, priority: fields.priority ?? 0, definition: objectOf(fields.definition, "Definition") });
      again();
      return `Policy ${fields.name} holds.`;
    });
  };
  return html`<form class="fields" onSubmit=${submit}>
    <${Field} label="Virtual host"><select value=${vhost} onChange=${(event) => setVhost(event.target.value)}>${(vhosts ?? []).map((each) => html`<option selected=${each.name === vhost}>${each.name}</option>`)}</select><//>
    <${Field} label="Name"><input name="name" required /><//>
    <${Field} label="Pattern" hint="regular expression"><input value=${pattern} onInput=${(event) => setPattern(event.target.value)} required /><//>
    <${Field} label="Applies to"><select value=${applyTo} onChange=${(event) => setApplyTo(event.target.value)}>${["all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams"].map((each) => html`<option>${each}</option>`)}</select><//>
    <${Field} label="Priority"><input name="priority" type="number" value="0" /><//>
    <label class="check"><input type="checkbox" name="operator" /> operator policy, which limits the others</label>
    <${Matches} vhost=${vhost} pattern=${pattern} applyTo=${applyTo} />
    <label class="field wide"><span>Definition<small>a JSON object</small></span><textarea name="definition" required placeholder='{"max-length": 100000, "overflow": "reject-publish"}'></textarea></label>
    <div><button type="submit" disabled=${busy}>Set</button></div><div class="wide"><${Outcome} error=${error} done=${done} /></div></form>`;
}

function List({ kind, title }) {
  const [policies, error, again] = usePoll(kind, 10);
  const columns = [
    { title: "Policy", show: (row) => row.name },
    { title: "Virtual host", show: (row) => row.vhost },
    { title: "Pattern", show: (row) => html`<code>${row.pattern}</code>` },
    { title: "Applies to", show: (row) => row["apply-to"] },
    { title: "Priority", numeric: true, show: (row) => row.priority },
    { title: "Definition", show: (row) => Object.entries(row.definition).map(([key, value]) => html`<${Badge}>${key}: ${shown(value)}<//>`) },
    { title: "", show: (row) => html`<${AskingButton} label="Delete" title=${`Delete policy ${row.name}?`} after=${again} act=${() => request("DELETE", `${kind}/${path(row.vhost, row.name)}`)}><p>It no longer holds for the queues and exchanges that match <code>${row.pattern}</code>.</p><//>` },
  ];
  return html`<h2>${title}</h2><${Problem} error=${error} />${policies ? (policies.length ? html`<${Table} caption=${title} columns=${columns} rows=${policies} keyOf=${(row) => `${row.vhost}/${row.name}`} />` : html`<${Empty}>None.<//>`) : ""}`;
}

export function Policies() {
  const [turn, setTurn] = useState(0);
  return html`<h1 tabindex="-1">Policies</h1>
    <${List} key=${`p${turn}`} kind="policies" title="Policies" />
    <${List} key=${`o${turn}`} kind="operator-policies" title="Operator policies" />
    <${Section} title="Set a policy" open=${true}><${PolicyForm} again=${() => setTurn((number) => number + 1)} /><//>`;
}
