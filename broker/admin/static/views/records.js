// Definitions, the journal, and the audit log.

import { html, useState, useEffect, usePoll, setQuery, Problem, Table, Badge, count, link, Empty, useAction, Outcome, Facts, shown } from "../parts.js";
import { request, get } from "../api.js";

const KINDS = [["vhosts", "name"], ["users", "name"], ["permissions", "user", "vhost"], ["topic_permissions", "user", "vhost", "exchange"], ["parameters", "component", "vhost", "name"], ["global_parameters", "name"], ["policies", "vhost", "name"], ["operator_policies", "vhost", "name"], ["exchanges", "vhost", "name"], ["queues", "vhost", "name"], ["bindings", "vhost", "source", "destination_type", "destination", "routing_key"], ["dispatchers", "vhost", "name"]];

const sorted = (value) => JSON.stringify(value, (_, each) => (each && typeof each === "object" && !Array.isArray(each) ? Object.fromEntries(Object.entries(each).sort(([a], [b]) => (a < b ? -1 : 1))) : each));

/** The changes that a file of definitions would make: objects that are new, and those that differ. */
export function differences(present, wanted) {
  const found = [];
  for (const [kind, ...key] of KINDS) {
    const before = new Map((present[kind] ?? []).map((each) => [key.map((name) => each[name]).join(" · "), each]));
    for (const each of wanted[kind] ?? []) {
      const name = key.map((part) => each[part]).join(" · ");
      const old = before.get(name);
      if (old === undefined) found.push({ kind, name, change: "new" });
      else {
        const differing = Object.keys(each).filter((field) => field in old && sorted(each[field]) !== sorted(old[field]));
        if (differing.length) found.push({ kind, name, change: "differs", detail: differing.map((field) => `${field}: ${shown(old[field])} → ${shown(each[field])}`).join("; ") });
      }
    }
  }
  return found;
}

export function Definitions() {
  const [wanted, setWanted] = useState(null);
  const [changes, setChanges] = useState(null);
  const [skip, setSkip] = useState(false);
  const [busy, error, done, run] = useAction();
  const download = () => run(async () => {
    const text = JSON.stringify(await get("definitions"), null, 2);
    const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    const anchor = document.createElement("a");
    anchor.href = address;
    anchor.download = "definitions.json";
    anchor.click();
    URL.revokeObjectURL(address);
    return "Exported.";
  });
  const choose = (event) => {
    const file = event.target.files[0];
    if (!file) return;
    run(async () => {
      let document_;
      try {
        document_ = JSON.parse(await file.text());
      } catch (problem) {
        throw new Error(`${file.name} is not JSON: ${problem.message}`);
      }
      setWanted(document_);
      setChanges(differences(await get("definitions"), document_));
    });
  };
  const bring = () => run(async () => {
    await request("POST", `definitions${skip ? "?unsupported=skip" : ""}`, wanted);
    setWanted(null);
    setChanges(null);
    return "Imported.";
  });
  const columns = [
    { title: "Object", show: (row) => row.name },
    { title: "Kind", show: (row) => row.kind.replace("_", " ") },
    { title: "Change", show: (row) => html`<${Badge} kind=${row.change === "new" ? "good" : "warning"}>${row.change}<//>${row.detail ?? ""}` },
  ];
  return html`<h1 tabindex="-1">Definitions</h1><p>Virtual hosts, users, permissions, policies, parameters, exchanges, queues and bindings; not the messages.</p>
    <div class="actions"><button type="button" class="primary" disabled=${busy} onClick=${download}>Export</button><label>Import a file <input type="file" accept="application/json,.json" onChange=${choose} /></label></div>
    <${Outcome} error=${error} done=${done} />
    ${changes === null ? "" : html`<h2>What the import would change</h2>${changes.length ? html`<${Table} caption="Changes" columns=${columns} rows=${changes} keyOf=${(row) => `${row.kind}/${row.name}`} />` : html`<${Empty}>Nothing: everything in the file is here already.<//>`}
      <p class="empty">An import deletes nothing. An object that differs from one that is here, and cannot be changed, refuses the whole import.</p>
      <div class="actions"><label class="check"><input type="checkbox" checked=${skip} onChange=${(event) => setSkip(event.target.checked)} /> leave out what amqpd does not have</label><button type="button" class="primary" disabled=${busy} onClick=${bring}>Import</button></div>`}`;
}

const LATER = ["reason", "origin_uid", "qpos", "peer_queue", "exchange", "routing_key", "message_id", "size", "quantity", "delivery_count", "persistent", "redelivered", "auto_ack", "text"];

/** The events of a message with its dead letters and copies, which the broker looks for in its journal. */
function Life({ query }) {
  const [wanted, setWanted] = useState(query.get("message") ?? "");
  const [byNumber, setByNumber] = useState(query.get("by") === "number");
  const [found, setFound] = useState(null);
  const [busy, error, done, run] = useAction();
  const search = () => run(async () => {
    setFound(null);
    setFound(await get(`journal/messages?${new URLSearchParams({ [byNumber ? "msg_uid" : "message_id"]: wanted })}`));
  });
  const submit = (event) => {
    event.preventDefault();
    setQuery({ message: wanted, by: byNumber ? "number" : null });
    search();
  };
  useEffect(() => { if (wanted) search(); }, []);
  const columns = [
    { title: "Time", show: (row) => new Date(row.ts / 1000).toISOString().replace("T", " ") },
    { title: "Event", show: (row) => html`<${Badge} kind=${/reject|expire|drop|refuse|unroutable|lost/.test(row.op) ? "warning" : "plain"}>${row.op}<//>` },
    { title: "Queue", show: (row) => (row.queue === null ? "" : html`<a href=${link("queue", row.vhost, row.queue)}>${row.queue}</a>`) },
    { title: "Message", numeric: true, show: (row) => row.msg_uid },
    { title: "By", show: (row) => [row.user, row.address, row.consumer, row.request].filter(Boolean).join(" · ") },
    { title: "More", show: (row) => LATER.filter((name) => row[name] !== null && row[name] !== false && row[name] !== 0).map((name) => html`<div>${name}: ${shown(row[name])}</div>`) },
  ];
  return html`<form class="search" role="search" onSubmit=${submit}><label>${byNumber ? "Number of the message" : "Property message-id"} <input type="search" data-search required value=${wanted} inputmode=${byNumber ? "numeric" : "text"} onInput=${(event) => setWanted(event.target.value)} /></label>
    <label class="check"><input type="checkbox" checked=${byNumber} onChange=${(event) => setByNumber(event.target.checked)} /> number in the journal</label><button type="submit" disabled=${busy}>${busy ? "Searching" : "Find"}</button></form><${Outcome} error=${error} done=${done} />
    ${found ? html`${found.damages.map((each) => html`<p class="problem" role="alert">${each}</p>`)}${found.more ? html`<p class="empty">Only the first ${count(found.events.length)} events.</p>` : ""}
      ${found.events.length ? html`<${Table} caption="Life of the message" columns=${columns} rows=${found.events} keyOf=${(row) => `${row.node}${row.seq}`} />` : html`<${Empty}>The journal has no such message.<//>`}` : ""}`;
}

export function Journal({ query }) {
  const [journal, error] = usePoll("journal", 10);
  return html`<h1 tabindex="-1">Journal</h1><${Problem} error=${error} />${journal ? html`
    ${journal.failure ? html`<p class="problem" role="alert">${journal.failure}</p>` : ""}
    <${Facts} facts=${[["Node", journal.node], ["Level", journal.level], ["Level that free disk space allows", journal.limit], ["Events written", count(journal.written)], ["Events lost", count(journal.lost)]]} />
    <h2>The life of a message</h2><${Life} query=${query} />
    <h2>Files</h2>${Object.entries(journal.nodes).map(([node, extent]) => html`<p key=${node}>${node}: events ${count(extent.first)} to ${extent.next === null ? "the end of its last file" : count(extent.next - 1)}</p>`)}` : ""}`;
}

export function Audit() {
  const [part, setPart] = useState("");
  const [lines, error] = usePoll(`audit?${new URLSearchParams({ count: 500, contains: part })}`, 5);
  const columns = [
    { title: "Time", show: (row) => new Date(row.time).toLocaleString() },
    { title: "User", show: (row) => row.user ?? "" },
    { title: "From", show: (row) => row.peer ?? "" },
    { title: "Event", show: (row) => html`<${Badge} kind=${/refused|error|lost/.test(row.event) ? "danger" : "plain"}>${row.event}<//>` },
    { title: "What", show: (row) => (row.method && row.path ? html`<code>${row.method} ${row.path}</code> ${row.status ?? ""}` : "") },
    { title: "More", show: (row) => Object.entries(row).filter(([name]) => !["time", "user", "peer", "event", "level", "method", "path", "status", "logger"].includes(name)).map(([name, value]) => html`<div>${name}: ${value}</div>`) },
  ];
  return html`<h1 tabindex="-1">Log-ins and changes</h1><form class="search" role="search" onSubmit=${(event) => event.preventDefault()}><label>Search <input type="search" data-search value=${part} onInput=${(event) => setPart(event.target.value)} /></label></form><${Problem} error=${error} />
    ${lines ? (lines.length ? html`<${Table} caption="Audit log" columns=${columns} rows=${lines} keyOf=${(row) => `${row.time}${row.peer}${row.event}${row.path}`} />` : html`<${Empty}>Nothing was logged since the start of the broker.<//>`) : ""}`;
}
