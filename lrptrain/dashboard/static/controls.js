// Controls of a field of the address: they change it, and follow it wherever else it is changed.

function fieldChoice(field, id, options) {
  // What the address asks for is shown, even where nothing here has it.
  const known = options.some(([value]) => String(value) === address[field]);
  const all = known ? options : [...options, [address[field], `${address[field]} (none here)`]];
  return choice(id, all, address[field], (value) => go({ [field]: value }), { "data-field": field });
}

function fieldInput(field, id, attributes) {
  return h("input", { id, value: address[field], "data-field": field, ...attributes, oninput: (event) => go({ [field]: event.target.value }, true) });
}

// Sets the controls of fields to what the address says.
function followAddress(fields) {
  for (const control of document.querySelectorAll("[data-field]")) {
    const { field } = control.dataset;
    // A number that is being typed, such as "0.", must not be replaced.
    if (!fields.includes(field) || control.value === address[field]) continue;
    if (control.tagName === "SELECT" && ![...control.options].some((option) => option.value === address[field])) {
      control.append(h("option", { value: address[field], textContent: `${address[field]} (none here)` }));
    }
    control.value = address[field];
  }
}
watch(Object.keys(FIELDS), followAddress);
