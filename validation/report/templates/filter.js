(() => {
  const box = document.getElementById("filter");
  const input = box.querySelector("input");
  const said = box.querySelector("output");
  const rows = Array.from(document.querySelectorAll("table.filtered tbody tr"));
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const folded = document.querySelectorAll("details.each");
  box.hidden = false;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, index) => {
      row.hidden = !words.every((word) => texts[index].includes(word));
      shown += !row.hidden;
    });
    folded.forEach((one) => { one.open = words.length > 0; });
    said.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
  });
})();
