// Prints what a report's scripts draw: node draw_page.mjs REPORT.html
import {openPage} from "./open_page.mjs";

process.stdout.write(String(openPage(process.argv[2])));
