// The list of queues, which the broker searches, sorts and pages; and the form for a new queue.

import { html, usePoll, Problem, Table, Badge, Search, Pages, usePagedList, link, count, rate, rateOf, duration, useAction, Outcome, Field, fieldsOf, objectOf, setQuery } from "../parts.js";
import { request, path } from "../api.js";

const COLUMNS = "name,vhost,type,durable,auto_delete,exclusive,stopped,arguments,messages,messages_ready,messages_unacknowledged,consumers,head_message_age,policy,message_stats.publish_details,message_stats.deliver_get_details,message_stats.ack_details";

export const queueLink = (queue) => html`<a href=${link("queue", queue.vhost, queue.name)}>${queue.name || "(empty name)"}</a>`;

export function kindsOf(queue) {
  const kinds = [];
  if (queue.type !== "classic") kinds.push(queue.type);
  if (queue.arguments?.["x-queue-kind"]) kinds.push(queue.arguments["x-queue-kind"]);
  if (queue.arguments?.["x-max-priority"]) kinds.push("priorities");
  if (queue.arguments?.["x-single-active-consumer"]) kinds.push("single active consumer");
  if (queue.arguments?.["x-remote"]) kinds.push("remote");
  if (queue.exclusive) kinds.push("exclusive");
  if (queue.auto_delete) kinds.push("auto-delete");
  if (!queue.durable) kinds.push("transient");
  return kinds;
}

const KIND_COLUMNS = [
  { title: "Queue", sort: "name", show: queueLink },
  { title: "Virtual host", sort: "vhost", show: (row) => row.vhost },
  { title: "Kind", show: (row) => [...kindsOf(row).map((kind) => html`<${Badge}>${kind}<//>`), ...(row.stopped?.length ? [html`<${Badge} kind="danger">stopped: ${row.stopped.join(", ")}<//>`] : [])] },
  { title: "Policy", show: (row) => row.policy ?? "" },
  { title: "Ready", sort: "messages_ready", numeric: true, show: (row) => count(row.messages_ready) },
  { title: "Unacknowledged", sort: "messages_unacknowledged", numeric: true, show: (row) => count(row.messages_unacknowledged) },
  { title: "First message", sort: "head_message_age", numeric: true, show: (row) => (row.messages ? duration(row.head_message_age) : "") },
  { title: "Consumers", sort: "consumers", numeric: true, show: (row) => count(row.consumers) },
  { title: "In", sort: "message_stats.publish_details.rate", numeric: true, show: (row) => rate(rateOf(row, "publish")) },
  { title: "Out", sort: "message_stats.deliver_get_details.rate", numeric: true, show: (row) => rate(rateOf(row, "deliver_get")) },
  { title: "Acknowledged", sort: "message_stats.ack_details.rate", numeric: true, show: (row) => rate(rateOf(row, "ack")) },
];

export function VhostChoice({ query, label = "Virtual host" }) {
  const [vhosts] = usePoll("vhosts?columns=name", 60);
  const chosen = query.get("vhost") ?? "";
  return html`<label>${label} <select value=${chosen} onChange=${(event) => setQuery({ vhost: event.target.value, page: null })}>
    <option value="">all</option>${(vhosts ?? []).map((each) => html`<option value=${each.name} selected=${each.name === chosen}>${each.name}</option>`)}</select></label>`;
}

export function Queues({ query }) {
  const vhost = query.get("vhost");
  const { data, error, wanted, onSort, sorting } = usePagedList(vhost ? `queues/${path(vhost)}` : "queues", { sort: "name", columns: COLUMNS });
  return html`<h1 tabindex="-1">Queues</h1>
    <div class="actions"><${VhostChoice} query=${query} /><a class="button" href=${link("new-queue")}>New queue</a></div>
    <${Search} wanted=${wanted} label="Search" total=${data ? `${count(data.filtered_count)} of ${count(data.total_count)} queues` : ""} />
    <${Problem} error=${error} />
    ${data ? html`<${Table} caption="Queues" columns=${KIND_COLUMNS} rows=${data.items} keyOf=${(row) => `${row.vhost}/${row.name}`} sorting=${sorting} onSort=${onSort} /><${Pages} data=${data} />` : ""}`;
}

export function NewQueue() {
  const [vhosts] = usePoll("vhosts?columns=name", 0);
  const [busy, error, done, run] = useAction();
  const submit = (event) => {
    event.preventDefault();
    const fields = fieldsOf(event.target);
    run(async () => {
      const body = { durable: fields.durable, auto_delete: fields.auto_delete, arguments: objectOf(fields.arguments, "Arguments") };
      if (fields.type !== "classic") body.arguments["x-queue-type"] = fields.type;
      await request("PUT", `queues/${path(fields.vhost, fields.name)}`, body);
      location.hash = link("queue", fields.vhost, fields.name);
    });
  };
  return html`<h1 tabindex="-1">New queue</h1><form class="fields panel" onSubmit=${submit}>
    <${Field} label="Virtual host"><select name="vhost">${(vhosts ?? []).map((each) => html`<option value=${each.name}>${each.name}</option>`)}</select><//>
    <${Field} label="Name"><input name="name" required maxlength="255" /><//>
    <${Field} label="Type"><select name="type"><option>classic</option><option>quorum</option><option>stream</option></select><//>
    <label class="check"><input type="checkbox" name="durable" checked /> durable</label>
    <label class="check"><input type="checkbox" name="auto_delete" /> auto-delete</label>
    <label class="field wide"><span>Arguments<small>a JSON object, such as {"x-max-length": 1000}</small></span><textarea name="arguments"></textarea></label>
    <div class="wide actions"><button type="submit" disabled=${busy}>Declare</button></div>
    <div class="wide"><${Outcome} error=${error} done=${done} /></div>
  </form>`;
}
