// A choice among many: by typing a part of the name.

const MOST_LISTED = 20; // a list of more is not searched by eye
const COLLATOR = new Intl.Collator(undefined, { numeric: true });

// options: [value, text]; the first is that of no choice. `chosen` gets a value.
function searchable(id, options, value, chosen) {
  if (options.length <= MOST_LISTED + 1) return choice(id, options, value, chosen);
  const values = new Map(options.map(([own]) => [own.toLowerCase(), own]));
  const list = h("datalist", { id: `${id}-list` }, options.slice(1).map(([own, text]) => h("option", { value: own }, text === own ? "" : text)));
  const take = (own) => {
    control.value = own;
    control.removeAttribute("aria-invalid");
    chosen(own);
  };
  const control = h("input", { id, type: "search", value, placeholder: `${options[0][1]}: type to search ${options.length - 1}`, autocomplete: "off",
    oninput: () => {
      const exact = values.get(control.value.toLowerCase());
      if (exact !== undefined) take(exact);
      else control.setAttribute("aria-invalid", String(!options.some(([own]) => own.toLowerCase().includes(control.value.toLowerCase()))));
    },
    onkeydown: (event) => {
      if (event.key !== "Enter" || values.has(control.value.toLowerCase())) return;
      const typed = control.value.toLowerCase();
      // A name that begins so comes before one that only contains it.
      const [best] = options.slice(1).map(([own]) => own).filter((own) => own.toLowerCase().includes(typed))
        .sort((one, other) => one.toLowerCase().indexOf(typed) - other.toLowerCase().indexOf(typed));
      if (best !== undefined) take(best);
    } });
  control.setAttribute("list", list.id);
  return h("span", { className: "searchable" }, control, list);
}

function fieldSearchable(field, id, options) {
  const known = options.some(([value]) => String(value) === address[field]);
  const all = known ? options : [...options, [address[field], `${address[field]} (none here)`]];
  const control = searchable(id, all, address[field], (value) => go({ [field]: value }));
  (control.matches("select, input") ? control : control.querySelector("input")).dataset.field = field;
  return control;
}
