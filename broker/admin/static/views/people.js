// Users with their permissions and limits, and virtual hosts.

import { html, usePoll, Problem, Table, Badge, Section, link, count, rate, rateOf, bytes, Empty, AskingButton, useAction, Outcome, Field, fieldsOf, Search, Pages, usePagedList } from "../parts.js";
import { request, path } from "../api.js";

const TAGS = ["administrator", "policymaker", "monitoring", "management", "impersonator"];

function UserForm({ user, again }) {
  const name = user?.name;
  const [busy, error, done, run] = useAction();
  const submit = (event) => {
    event.preventDefault();
    const form = event.target;
    const data = new FormData(form);
    const who = name ?? data.get("name");
    run(async () => {
      const others = (user?.tags ?? []).filter((tag) => !TAGS.includes(tag));
      const body = { tags: [...TAGS.filter((tag) => data.get(`tag-${tag}`)), ...others].join(",") };
      if (data.get("password")) body.password = data.get("password");
      await request("PUT", `users/${path(who)}`, body);
      form.querySelector("[type=password]").value = "";
      again();
      return `User ${who} is saved.`;
    });
  };
  return html`<form class="fields" onSubmit=${submit}>${name === undefined ? html`<${Field} label="Name"><input name="name" required autocomplete="off" /><//>` : ""}
    <${Field} label=${name === undefined ? "Password" : "New password"} hint=${name === undefined ? "none: cannot log in by password" : "empty: stays as it is"}><input name="password" type="password" autocomplete="new-password" /><//>
    <fieldset class="choice wide"><legend>Tags</legend>${TAGS.map((tag) => html`<label class="check"><input type="checkbox" name=${`tag-${tag}`} defaultChecked=${user?.tags.includes(tag)} /> ${tag}</label>`)}</fieldset>
    <div><button type="submit" disabled=${busy}>Save</button></div><div class="wide"><${Outcome} error=${error} done=${done} /></div></form>`;
}

export function People() {
  const { data, error, again, wanted, onSort, sorting } = usePagedList("users", { sort: "name" });
  const columns = [
    { title: "User", sort: "name", show: (row) => html`<a href=${link("user", row.name)}>${row.name}</a>` },
    { title: "Tags", show: (row) => row.tags.map((tag) => html`<${Badge}>${tag}<//>`) },
    { title: "Password", show: (row) => (row.password_hash ? "yes" : html`<${Badge} kind="warning">none<//>`) },
    { title: "Limits", show: (row) => Object.entries(row.limits ?? {}).map(([key, value]) => html`<${Badge}>${key}: ${value}<//>`) },
  ];
  const items = data?.items ?? data;
  return html`<h1 tabindex="-1">Users</h1><${Search} wanted=${wanted} label="Search" /><${Problem} error=${error} />
    ${items ? html`<${Table} caption="Users" columns=${columns} rows=${items} keyOf=${(row) => row.name} sorting=${sorting} onSort=${onSort} /><${Pages} data=${data} />` : ""}
    <${Section} title="New user"><${UserForm} again=${again} /><//>`;
}

function Permissions({ name }) {
  const [permissions, error, again] = usePoll(`users/${path(name)}/permissions`, 15);
  const [vhosts] = usePoll("vhosts?columns=name", 60);
  const [busy, problem, done, run] = useAction();
  const submit = (event) => {
    event.preventDefault();
    const fields = fieldsOf(event.target);
    run(async () => {
      await request("PUT", `permissions/${path(fields.vhost, name)}`, { configure: fields.configure ?? "", write: fields.write ?? "", read: fields.read ?? "" });
      again();
      return "Permissions are set.";
    });
  };
  const columns = [
    { title: "Virtual host", show: (row) => row.vhost },
    ...["configure", "write", "read"].map((right) => ({ title: right, show: (row) => html`<code>${row[right]}</code>` })),
    { title: "", show: (row) => html`<${AskingButton} label="Clear" title=${`Take all permissions in ${row.vhost} from ${name}?`} after=${again} act=${() => request("DELETE", `permissions/${path(row.vhost, name)}`)}><p>The user's open connections to this virtual host lose their rights at once.</p><//>` },
  ];
  return html`<${Problem} error=${error} />${permissions ? (permissions.length ? html`<${Table} caption="Permissions" columns=${columns} rows=${permissions} keyOf=${(row) => row.vhost} />` : html`<${Empty}>No permissions in any virtual host.<//>`) : ""}
    <form class="fields" onSubmit=${submit}><${Field} label="Virtual host"><select name="vhost">${(vhosts ?? []).map((each) => html`<option>${each.name}</option>`)}</select><//>
      ${["configure", "write", "read"].map((right) => html`<${Field} label=${right} hint="regular expression"><input name=${right} value=".*" /><//>`)}
      <div><button type="submit" disabled=${busy}>Set</button></div><div class="wide"><${Outcome} error=${problem} done=${done} /></div></form>`;
}

export function User({ parts }) {
  const [name] = parts;
  const [user, error, again] = usePoll(`users/${path(name)}`, 15);
  return html`<h1 tabindex="-1">User ${name}</h1><${Problem} error=${error} />${user ? html`<p>${user.tags.map((tag) => html`<${Badge}>${tag}<//>`)}</p>
    <${Section} title="Permissions" open=${true}><${Permissions} name=${name} /><//>
    <${Section} title="Password and tags"><${UserForm} user=${user} again=${again} /><//>
    <${Section} title="Delete"><${AskingButton} label="Delete" title=${`Delete user ${name}?`} expected=${name} act=${() => request("DELETE", `users/${path(name)}`)} after=${() => { location.hash = link("users"); }}><p>The user's connections are closed.</p><//><//>` : ""}`;
}

export function VirtualHosts() {
  const [vhosts, error, again] = usePoll("vhosts");
  const [busy, problem, done, run] = useAction();
  const submit = (event) => {
    event.preventDefault();
    const form = event.target;
    const fields = fieldsOf(form);
    run(async () => {
      await request("PUT", `vhosts/${path(fields.name)}`, { description: fields.description ?? "" });
      form.reset();
      again();
      return `Virtual host ${fields.name} is made.`;
    });
  };
  const columns = [
    { title: "Virtual host", show: (row) => html`<a href=${`${link("queues")}?vhost=${encodeURIComponent(row.name)}`}>${row.name}</a>` },
    { title: "Description", show: (row) => row.description ?? row.metadata?.description ?? "" },
    { title: "Ready", numeric: true, show: (row) => count(row.messages_ready) },
    { title: "Unacknowledged", numeric: true, show: (row) => count(row.messages_unacknowledged) },
    { title: "In", numeric: true, show: (row) => rate(rateOf(row, "publish")) },
    { title: "Out", numeric: true, show: (row) => rate(rateOf(row, "deliver_get")) },
    { title: "Bytes in", numeric: true, show: (row) => `${bytes(row.recv_oct_details?.rate ?? 0)}/s` },
    { title: "", show: (row) => (row.protected_from_deletion ? html`<${Badge}>protected<//>` : html`<${AskingButton} label="Delete" title=${`Delete virtual host ${row.name}?`} expected=${row.name} after=${again} act=${() => request("DELETE", `vhosts/${path(row.name)}`)}><p>All its queues, exchanges, bindings and ${count(row.messages)} messages are deleted, and its connections closed.</p><//>`) },
  ];
  return html`<h1 tabindex="-1">Virtual hosts</h1><${Problem} error=${error} />${vhosts ? html`<${Table} caption="Virtual hosts" columns=${columns} rows=${vhosts} keyOf=${(row) => row.name} />` : ""}
    <${Section} title="New virtual host"><form class="fields" onSubmit=${submit}><${Field} label="Name"><input name="name" required /><//><${Field} label="Description"><input name="description" /><//><div><button type="submit" disabled=${busy}>Make</button></div><div class="wide"><${Outcome} error=${problem} done=${done} /></div></form><//>`;
}
