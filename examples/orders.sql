-- Fills a table, builds an index over it, and asks three questions.
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, city TEXT, amount REAL, note TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
INSERT INTO orders SELECT i, i * 7919 % 5000, 'city-' || (i % 300), (i * 37 % 10007) / 7.0, printf('order %d of %s', i, hex(i * 12345)) FROM n;
CREATE INDEX by_customer ON orders (customer, amount);
SELECT count(*), round(sum(amount)) FROM orders;
SELECT city, count(*), round(avg(amount), 2) FROM orders GROUP BY city ORDER BY 3 DESC LIMIT 3;
SELECT customer, length(group_concat(note, '; ')) FROM orders GROUP BY customer ORDER BY sum(amount) DESC LIMIT 1;
