// Exchanges: the list, and one exchange with its bindings, a form to publish, and where a message would go.

import { html, useState, usePoll, Problem, Table, Badge, Search, Pages, Plot, historyOf, usePagedList, link, count, rate, useAction, Outcome, Field, fieldsOf, objectOf, Section, AskingButton, Facts, Empty, shown } from "../parts.js";
import { request, path } from "../api.js";
import { VhostChoice } from "./queues.js";

const nameOf = (name) => name || "amq.default";

const COLUMNS = [
  { title: "Exchange", sort: "name", show: (row) => html`<a href=${link("exchange", row.vhost, nameOf(row.name))}>${row.name || "(default exchange)"}</a>` },
  { title: "Virtual host", sort: "vhost", show: (row) => row.vhost },
  { title: "Type", sort: "type", show: (row) => row.type },
  { title: "Properties", show: (row) => html`${row.durable ? "" : html`<${Badge}>transient<//>`}${row.auto_delete ? html`<${Badge}>auto-delete<//>` : ""}${row.internal ? html`<${Badge}>internal<//>` : ""}${row.policy ? html`<${Badge}>policy ${row.policy}<//>` : ""}` },
  { title: "In", sort: "message_stats.publish_in_details.rate", numeric: true, show: (row) => rate(row.message_stats?.publish_in_details?.rate ?? 0) },
  { title: "Out", sort: "message_stats.publish_out_details.rate", numeric: true, show: (row) => rate(row.message_stats?.publish_out_details?.rate ?? 0) },
];

function NewExchange({ again }) {
  const [vhosts] = usePoll("vhosts?columns=name", 60);
  const [overview] = usePoll("overview?columns=exchange_types", 0);
  const [busy, error, done, run] = useAction();
  const submit = (event) => {
    event.preventDefault();
    const fields = fieldsOf(event.target);
    run(async () => {
      await request("PUT", `exchanges/${path(fields.vhost, fields.name)}`, { type: fields.type, durable: fields.durable, auto_delete: fields.auto_delete, internal: fields.internal, arguments: objectOf(fields.arguments, "Arguments") });
      again();
      return `Exchange ${fields.name} is declared.`;
    });
  };
  return html`<form class="fields" onSubmit=${submit}>
    <${Field} label="Virtual host"><select name="vhost">${(vhosts ?? []).map((each) => html`<option>${each.name}</option>`)}</select><//>
    <${Field} label="Name"><input name="name" required /><//>
    <${Field} label="Type"><select name="type">${(overview?.exchange_types ?? []).map((each) => html`<option>${each.name}</option>`)}</select><//>
    <label class="check"><input type="checkbox" name="durable" checked /> durable</label><label class="check"><input type="checkbox" name="auto_delete" /> auto-delete</label><label class="check"><input type="checkbox" name="internal" /> internal</label>
    <${Field} label="Arguments" hint="JSON"><input name="arguments" /><//><div><button type="submit" disabled=${busy}>Declare</button></div><div class="wide"><${Outcome} error=${error} done=${done} /></div></form>`;
}

export function Exchanges({ query }) {
  const vhost = query.get("vhost");
  const { data, error, again, wanted, onSort, sorting } = usePagedList(vhost ? `exchanges/${path(vhost)}` : "exchanges", { sort: "name" });
  return html`<h1 tabindex="-1">Exchanges</h1><div class="actions"><${VhostChoice} query=${query} /></div>
    <${Search} wanted=${wanted} label="Search" total=${data ? `${count(data.filtered_count)} of ${count(data.total_count)} exchanges` : ""} /><${Problem} error=${error} />
    ${data ? html`<${Table} caption="Exchanges" columns=${COLUMNS} rows=${data.items} keyOf=${(row) => `${row.vhost}/${row.name}`} sorting=${sorting} onSort=${onSort} /><${Pages} data=${data} />` : ""}
    <${Section} title="New exchange"><${NewExchange} again=${again} /><//>`;
}

function RouteAndPublish({ vhost, name }) {
  const [route, setRoute] = useState(null);
  const [busy, error, done, run] = useAction();
  const ask = (form) => {
    const fields = fieldsOf(form);
    return { routing_key: fields.routing_key ?? "", properties: objectOf(fields.properties, "Properties"), payload: fields.payload ?? "", payload_encoding: "string" };
  };
  const preview = (event) => {
    event.preventDefault();
    const form = event.target;
    run(async () => { const { routing_key, properties } = ask(form); setRoute(await request("POST", `exchanges/${path(vhost, name)}/route`, { routing_key, properties })); });
  };
  const publish = (event) => {
    const form = event.target.form;
    run(async () => { const answer = await request("POST", `exchanges/${path(vhost, name)}/publish`, ask(form)); return answer.routed ? "Published: a queue has the message." : "No queue took the message."; });
  };
  return html`<form class="fields" onSubmit=${preview}><${Field} label="Routing key"><input name="routing_key" /><//><label class="field wide"><span>Properties<small>JSON, with "headers"</small></span><textarea name="properties"></textarea></label>
    <label class="field wide"><span>Body</span><textarea name="payload"></textarea></label>
    <div class="actions"><button type="submit" disabled=${busy}>Where would it go?</button><button type="button" disabled=${busy} onClick=${publish}>Publish</button></div></form>
    <${Outcome} error=${error} done=${done} />
    ${route === null ? "" : route.routed ? html`<p role="status">To ${route.queues.map((queue) => html`<a href=${link("queue", queue.vhost, queue.name)}>${queue.name}</a> ${queue.is_stopped ? html`<${Badge} kind="danger">enqueue stopped<//>` : ""}${queue.is_partitioned ? html`<${Badge}>to one of its members<//>` : ""}`)}${route.delay_ms ? `, after ${route.delay_ms} ms` : ""}.</p>` : html`<p role="status">To no queue: it would be dropped, or returned if it is mandatory.</p>`}`;
}

function BindingTable({ where, vhost, again, bindings, side }) {
  const columns = [
    { title: side === "source" ? "To" : "From", show: (row) => (side === "source" ? (row.destination_type === "queue" ? html`<a href=${link("queue", vhost, row.destination)}>${row.destination}</a>` : html`<a href=${link("exchange", vhost, row.destination)}>${row.destination}</a> (exchange)`) : html`<a href=${link("exchange", vhost, nameOf(row.source))}>${nameOf(row.source)}</a>`) },
    { title: "Routing key", show: (row) => html`<code>${row.routing_key}</code>` },
    { title: "Arguments", show: (row) => (Object.keys(row.arguments).length ? html`<code>${JSON.stringify(row.arguments)}</code>` : "") },
    { title: "", show: (row) => (row.source ? html`<${AskingButton} label="Unbind" title="Remove this binding?" after=${again} act=${() => request("DELETE", `bindings/${path(vhost, "e", row.source, row.destination_type === "queue" ? "q" : "e", row.destination, row.properties_key)}`)}><p>${row.source} → ${row.destination}, key <code>${row.routing_key}</code></p><//>` : "") },
  ];
  return bindings.length ? html`<${Table} caption=${where} columns=${columns} rows=${bindings} keyOf=${(row) => `${row.source}/${row.destination_type}/${row.destination}/${row.properties_key}`} />` : html`<${Empty}>None.<//>`;
}

export function Exchange({ parts }) {
  const [vhost, name] = parts;
  const where = `exchanges/${path(vhost, name)}`;
  const [exchange, error] = usePoll(`${where}?${historyOf("minute", ["msg_rates"])}`);
  const [out, , againOut] = usePoll(`${where}/bindings/source?page=1&page_size=200`, 15);
  const [into, , againInto] = usePoll(`${where}/bindings/destination?page=1&page_size=200`, 15);
  const isOwn = !/^amq\./.test(name);
  return html`<h1 tabindex="-1">Exchange ${name === "amq.default" ? "(default exchange)" : name}</h1><${Problem} error=${error} />${exchange ? html`
    <${Facts} facts=${[["Type", exchange.type], ["Virtual host", vhost], ["Durable", exchange.durable ? "yes" : "no"], ["Policy", exchange.policy], ["Delayed messages", exchange.messages_delayed], ...Object.entries(exchange.arguments).map(([key, value]) => [key, shown(value)])]} />
    <div class="plots"><${Plot} title="Messages a second" lines=${[{ title: "in", details: exchange.message_stats?.publish_in_details, isRate: true }, { title: "out", details: exchange.message_stats?.publish_out_details, isRate: true }]} /></div>
    <${Section} title="Where would a message go? Publish" open=${true}><${RouteAndPublish} vhost=${vhost} name=${name} /><//>
    <${Section} title=${`Bindings from here${out ? ` (${count(out.total_count ?? out.length)})` : ""}`} open=${true}>${out ? html`<${BindingTable} where="Bindings from here" vhost=${vhost} again=${againOut} bindings=${out.items ?? out} side="source" />` : ""}<//>
    <${Section} title="Bindings to here">${into ? html`<${BindingTable} where="Bindings to here" vhost=${vhost} again=${againInto} bindings=${into.items ?? into} side="destination" />` : ""}<//>
    ${isOwn ? html`<${Section} title="Delete"><${AskingButton} label="Delete" title=${`Delete exchange ${name}?`} expected=${name} act=${() => request("DELETE", where)} after=${() => { location.hash = link("exchanges"); }}><p>${count((out?.total_count ?? 0) + (into?.total_count ?? 0))} bindings are removed. Publishers to this exchange get an error.</p><//><//>` : ""}` : ""}`;
}
