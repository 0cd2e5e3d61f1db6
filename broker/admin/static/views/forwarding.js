// Forwarding of messages: shovels, federation, remote queues, dispatchers and partitioned queues.

import { html, usePoll, usePagedList, Pages, Problem, Table, Badge, Section, link, count, Empty, AskingButton, useAction, Outcome, shown } from "../parts.js";
import { request, path } from "../api.js";

const stateBadge = (state) => html`<${Badge} kind=${state === "running" || state === "idle" ? "good" : state === "paused" ? "warning" : "danger"}>${state}<//>`;

function Shovels() {
  const [shovels, error, again] = usePoll("shovels");
  const [, problem, done, run] = useAction();
  const act = (row, what) => run(async () => {
    if (what === "restart") await request("DELETE", `shovels/vhost/${path(row.vhost, row.name)}/restart`);
    else await request("POST", `shovels/vhost/${path(row.vhost, row.name)}/${what}`);
    again();
    return `Shovel ${row.name}: ${what}.`;
  });
  const columns = [
    { title: "Shovel", show: (row) => row.name },
    { title: "State", show: (row) => html`${stateBadge(row.state)} ${row.reason ? html`<small>${row.reason}</small>` : ""}` },
    { title: "From", show: (row) => `${row.src_queue ?? row.src_exchange ?? row.src_address ?? ""} at ${row.src_uri}` },
    { title: "To", show: (row) => `${row.dest_queue ?? row.dest_exchange ?? row.dest_address ?? ""} at ${row.dest_uri}` },
    { title: "Forwarded", numeric: true, show: (row) => count(row.forwarded) },
    { title: "Confirmed", numeric: true, show: (row) => count(row.confirmed) },
    { title: "Unconfirmed", numeric: true, show: (row) => count(row.unconfirmed) },
    { title: "", show: (row) => html`<span class="actions">${row.state === "paused" ? html`<button type="button" onClick=${() => act(row, "resume")}>Resume</button>` : html`<button type="button" onClick=${() => act(row, "pause")}>Pause</button>`}<button type="button" onClick=${() => act(row, "restart")}>Restart</button>
      <${AskingButton} label="Delete" title=${`Delete shovel ${row.name}?`} after=${again} act=${() => request("DELETE", `shovels/vhost/${path(row.vhost, row.name)}`)}><p>Messages that are on their way return to the source.</p><//></span>` },
  ];
  return html`<${Problem} error=${error} /><${Outcome} error=${problem} done=${done} />${shovels ? (shovels.length ? html`<${Table} caption="Shovels" columns=${columns} rows=${shovels} keyOf=${(row) => `${row.vhost}/${row.name}`} />` : html`<${Empty}>No shovels.<//>`) : ""}`;
}

function Federation() {
  const [links, error] = usePoll("federation-links");
  const columns = [
    { title: "Of", show: (row) => `${row.type} ${row.exchange ?? row.queue}` },
    { title: "Upstream", show: (row) => `${row.upstream} (${row.uri ?? ""})` },
    { title: "State", show: (row) => html`${stateBadge(row.status)} ${row.error ? html`<small>${shown(row.error)}</small>` : ""}` },
    { title: "Virtual host", show: (row) => row.vhost },
  ];
  return html`<${Problem} error=${error} />${links ? (links.length ? html`<${Table} caption="Federation links" columns=${columns} rows=${links} keyOf=${(row) => row.id ?? `${row.vhost}/${row.exchange ?? row.queue}/${row.upstream}`} />` : html`<${Empty}>No federation links.<//>`) : ""}`;
}

function Dispatchers() {
  const [dispatchers, error, again] = usePoll("dispatchers");
  const [, problem, done, run] = useAction();
  const act = (row, what) => run(async () => { await request("POST", `dispatchers/${path(row.vhost, row.name)}/${what}`); again(); return `Dispatcher ${row.name}: ${what}.`; });
  const columns = [
    { title: "Dispatcher", show: (row) => row.name },
    { title: "State", show: (row) => html`${stateBadge(row.status?.state)} ${row.status?.last_failure ? html`<small>${row.status.last_failure}</small>` : ""}` },
    { title: "Queue", show: (row) => html`<a href=${link("queue", row.vhost, row.queue)}>${row.queue}</a>` },
    { title: "Target", show: (row) => row.url ?? row.command },
    { title: "Calls now", numeric: true, show: (row) => count(row.status?.calls) },
    { title: "Calls", show: (row) => Object.entries(row.status?.total_calls ?? {}).filter(([, number]) => number).map(([result, number]) => html`<${Badge}>${result}: ${count(number)}<//>`) },
    { title: "", show: (row) => html`<span class="actions"><button type="button" onClick=${() => act(row, row.status?.state === "paused" ? "resume" : "pause")}>${row.status?.state === "paused" ? "Resume" : "Pause"}</button>
      <${AskingButton} label="Delete" title=${`Delete dispatcher ${row.name}?`} after=${again} act=${() => request("DELETE", `dispatchers/${path(row.vhost, row.name)}`)} /></span>` },
  ];
  return html`<${Problem} error=${error} /><${Outcome} error=${problem} done=${done} />${dispatchers ? (dispatchers.length ? html`<${Table} caption="Dispatchers" columns=${columns} rows=${dispatchers} keyOf=${(row) => `${row.vhost}/${row.name}`} />` : html`<${Empty}>No dispatchers.<//>`) : ""}`;
}

function Partitioned() {
  const [queues, error] = usePoll("partitioned");
  const columns = [
    { title: "Queue", show: (row) => html`<a href=${link("queue", row.vhost, row.name)}>${row.name}</a>` },
    { title: "By", show: (row) => row.by },
    { title: "Members", show: (row) => row.members.map((each) => html`<div><a href=${link("queue", row.vhost, each.name)}>${each.name}</a> ${count(each.messages)} messages${each.leaving ? html` <${Badge} kind="warning">leaving<//>` : ""}${each.weight ? html` <small>weight ${each.weight}</small>` : ""}</div>`) },
    { title: "Moving", numeric: true, show: (row) => count(row.messages_moving) },
  ];
  return html`<${Problem} error=${error} />${queues ? (queues.length ? html`<${Table} caption="Partitioned queues" columns=${columns} rows=${queues} keyOf=${(row) => `${row.vhost}/${row.name}`} />` : html`<${Empty}>No partitioned queues.<//>`) : ""}`;
}

function Remote() {
  const { data, error } = usePagedList("queues", { having: "remote", columns: "name,vhost,remote", sort: "name", seconds: 10 });
  const columns = [
    { title: "Queue", show: (row) => html`<a href=${link("queue", row.vhost, row.name)}>${row.name}</a>` },
    { title: "State", show: (row) => html`${stateBadge(row.remote.state)} ${row.remote.reason ? html`<small>${row.remote.reason}</small>` : ""}` },
    { title: "Other broker", show: (row) => shown(row.remote.address) },
    { title: "Waiting here", numeric: true, show: (row) => count(row.remote.messages_waiting) },
    { title: "Unconfirmed", numeric: true, show: (row) => count(row.remote.messages_unconfirmed) },
    { title: "Ready there", numeric: true, show: (row) => count(row.remote.messages_ready_there) },
  ];
  return html`<${Problem} error=${error} />${data ? (data.items.length ? html`<${Table} caption="Remote queues" columns=${columns} rows=${data.items} keyOf=${(row) => `${row.vhost}/${row.name}`} /><${Pages} data=${data} />` : html`<${Empty}>No remote queues.<//>`) : ""}`;
}

export function Forwarding() {
  return html`<h1 tabindex="-1">Forwarding</h1>
    <${Section} title="Shovels" open=${true}><${Shovels} /><//>
    <${Section} title="Federation" open=${true}><${Federation} /><//>
    <${Section} title="Remote queues" open=${true}><${Remote} /><//>
    <${Section} title="Dispatchers" open=${true}><${Dispatchers} /><//>
    <${Section} title="Partitioned queues" open=${true}><${Partitioned} /><//>`;
}
