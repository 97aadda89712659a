"""Tests the timeline in a real browser."""

from case import PageCase
from runs import HOSTILE, compiled, made, page, sampled


class Timeline(PageCase):
    def timeline(self, **how):
        timeline = self.open(page("timeline"), **how)
        timeline.run("document.querySelector('#scroll').focus()")
        return timeline

    def span(self, timeline):
        timeline.settle()
        return timeline.text("#span")

    def hold(self, timeline, key):
        timeline.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=ord(key.upper()), text=key)
        timeline.run("new Promise(done => setTimeout(() => done(1), 250))")
        timeline.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=ord(key.upper()))

    def fact(self, timeline, name):
        facts = timeline.run("Object.fromEntries([...document.querySelectorAll('#chosen dt')].map(t => [t.textContent, t.nextSibling.textContent]))")
        return facts.get(name)

    def labels(self, timeline):
        return timeline.run("[...document.querySelectorAll('#labels > *')].map(label => label.innerText)")

    # Returns the number of columns in which the pixel between the first lane and the next one is darker than the paper.
    def lines(self, timeline):
        timeline.settle()
        return timeline.run("""(() => {
            const lane = document.querySelector('#labels .lane').getBoundingClientRect(), labels = document.querySelector('#labels').offsetWidth;
            const canvas = document.querySelector('#canvas'), y = lane.bottom - canvas.getBoundingClientRect().top - 2;
            const { data, width } = canvas.getContext('2d').getImageData(labels + 1, y, canvas.width - labels - 1, 1);
            let count = 0;
            for (let x = 0; x < width; x++) if (data[4 * x] < 240) count++;
            return count;
        })()""")

    # Selects the first match of a search.
    def find(self, timeline, term):
        timeline.key("/")
        timeline.run("document.querySelector('#search').value = ''")
        timeline.type(term)
        timeline.key("Enter")
        timeline.run("document.querySelector('#scroll').focus()")

    def test_w_s_a_d_zoom_and_move(self):
        timeline = self.timeline()
        opened = self.span(timeline)
        self.hold(timeline, "w")
        near = self.span(timeline)
        self.assertNotEqual(near, opened)
        before = self.pixels(timeline)
        self.hold(timeline, "d")
        self.assertEqual(self.span(timeline), near)
        self.assertNotEqual(self.pixels(timeline), before)
        self.hold(timeline, "a")
        timeline.key("1")
        self.assertEqual(self.span(timeline), opened)

    def test_it_opens_on_the_steps_and_the_whole_run_is_one_key_away(self):
        timeline = self.timeline()
        self.assertEqual(timeline.text("#chosen h2"), "Steps 0 to 4")
        self.assertEqual(timeline.text("#scope"), "Steps")
        opened, begins = self.span(timeline), self.fact(timeline, "From")
        timeline.key("0")
        self.assertEqual(timeline.text("#chosen h2"), "The whole run")
        self.assertNotEqual(self.span(timeline), opened)
        self.assertNotEqual(self.fact(timeline, "From"), begins)
        timeline.press("#scope")
        self.assertEqual(timeline.text("#chosen h2"), "Steps 0 to 4")
        self.assertEqual(self.span(timeline), opened)
        timeline.press("#fit")
        self.assertEqual(timeline.text("#chosen h2"), "The whole run")

    def test_a_slice_is_as_long_as_its_steps(self):
        timeline = self.open(page("timeline", "--steps", "2-3", "--rank", "0"))
        self.assertEqual(timeline.text("#chosen h2"), "The slice, with steps 2 to 3")
        # From mark to mark: 12.2 ms and 13.2 ms.
        self.assertEqual(self.fact(timeline, "Length"), "25.4 ms")
        self.assertEqual(self.fact(timeline, "From"), "28.5 ms")
        # The period of a sample must not extend beyond the end of the timeline.
        timeline.key("0")
        self.assertEqual(self.fact(timeline, "From"), "28.5 ms")

    def test_the_wheel_zooms_and_moves(self):
        timeline = self.timeline()
        whole = self.span(timeline)
        timeline.mouse("mouseWheel", 700, 400, deltaX=0, deltaY=-300, modifiers=2)
        near = self.span(timeline)
        self.assertNotEqual(near, whole)
        before = self.pixels(timeline)
        timeline.mouse("mouseWheel", 700, 400, deltaX=200, deltaY=0)
        self.assertNotEqual(self.pixels(timeline), before)
        self.assertEqual(self.span(timeline), near)

    def test_dragging_selects_a_stretch_and_lists_what_was_active(self):
        timeline = self.timeline()
        timeline.drag(650, 400, 900, 400)
        self.assertEqual(timeline.text("#chosen h2"), "Selected time")
        table = timeline.text("#chosen table")
        self.assertIn("CPU active", table)
        self.assertIn("rank 1", table)
        self.assertRegex(table, r"\d+\.\d %")
        self.assertIn("On the GPU", timeline.text("#table"))
        timeline.key("Escape")
        self.assertEqual(timeline.text("#chosen h2"), "Steps 0 to 4")

    def test_shift_and_drag_moves(self):
        timeline = self.timeline()
        self.hold(timeline, "w")
        near, before = self.span(timeline), self.pixels(timeline)
        timeline.drag(650, 400, 900, 400, modifiers=8)
        self.assertEqual(self.span(timeline), near)
        self.assertNotEqual(self.pixels(timeline), before)

    def test_a_search_counts_and_steps(self):
        timeline = self.timeline()
        self.find(timeline, "nccl")
        self.assertEqual(timeline.text("#found"), "48 events")
        self.assertIn("nccl", timeline.text("#chosen h2"))
        first = self.fact(timeline, "Starts")
        timeline.key("n")
        self.assertNotEqual(self.fact(timeline, "Starts"), first)
        timeline.key("N")
        self.assertEqual(self.fact(timeline, "Starts"), first)

    def test_a_kernel_leads_to_its_launch_and_back(self):
        timeline = self.timeline()
        self.find(timeline, "flash_fwd")
        self.assertEqual(self.fact(timeline, "Kind"), "kernel")
        self.assertIn("cudaLaunchKernel", self.fact(timeline, "Launched by"))
        self.assertIn("block 128×1×1", self.fact(timeline, "Details"))
        self.assertIn("aten::scaled_dot_product_attention", self.fact(timeline, "Within"))
        timeline.key("g")
        self.assertEqual(timeline.text("#chosen h2"), "cudaLaunchKernel")
        self.assertIn("flash_fwd", self.fact(timeline, "Launches"))
        timeline.key("g")
        self.assertEqual(self.fact(timeline, "Kind"), "kernel")

    def test_collectives_show_what_they_moved(self):
        timeline = self.timeline()
        self.find(timeline, "nccl")
        self.assertIn("all_reduce of 100 MiB Float among 2 ranks", self.fact(timeline, "Details"))

    def test_a_collective_leads_to_the_same_one_on_other_ranks(self):
        timeline = self.timeline()
        self.find(timeline, "nccl")
        first = self.fact(timeline, "On")
        self.assertRegex(self.fact(timeline, "On other ranks"), r"rank 1, [\d.]+ .?s (before|after)")
        before = self.pixels(timeline)
        timeline.run("[...document.querySelectorAll('#chosen dt')].find(t => t.textContent === 'On other ranks').nextSibling.querySelector('button').click()")
        self.assertNotEqual(self.fact(timeline, "On"), first)
        self.assertIn("rank 0", self.fact(timeline, "On other ranks"))
        self.assertNotEqual(self.pixels(timeline), before)

    def test_a_forward_operator_leads_to_its_backward_one(self):
        timeline = self.timeline()
        self.find(timeline, "aten::gelu")
        self.assertEqual(self.fact(timeline, "Its backward"), "GeluBackward0")
        self.find(timeline, "GeluBackward0")
        self.assertEqual(self.fact(timeline, "Backward of"), "aten::gelu")

    def test_a_wait_for_the_device_has_a_row_and_its_call(self):
        timeline = self.timeline()
        self.find(timeline, "Context Sync")
        self.assertEqual(self.fact(timeline, "Kind"), "synchronisation")
        self.assertIn("GPU 0 waits", timeline.text("#labels"))
        self.assertIn("cudaDeviceSynchronize", self.fact(timeline, "Launched by"))

    def test_the_keyboard_alone_reaches_events(self):
        timeline = self.timeline()
        timeline.key("Enter")
        self.assertEqual(timeline.text("#chosen h2"), "ProfilerStep#0")
        timeline.key("ArrowRight")
        self.assertEqual(timeline.text("#chosen h2"), "ProfilerStep#1")
        timeline.key("ArrowDown")
        self.assertEqual(timeline.text("#chosen h2"), "train.py(118): train_step")
        timeline.key("ArrowUp")
        self.assertEqual(timeline.text("#chosen h2"), "ProfilerStep#1")
        whole = self.span(timeline)
        timeline.key("f")
        self.assertNotEqual(self.span(timeline), whole)
        timeline.key("r")
        self.assertEqual(timeline.text("#chosen h2"), "Selected time")
        timeline.key("]")
        self.assertNotEqual(self.span(timeline), whole)

    def test_lanes_are_ranks_threads_streams_and_curves(self):
        labels = self.timeline().text("#labels")
        for label in ("rank 0", "pt_autograd_0", "GPU 0 stream 20 nccl", "sampled", "Host heap", "GPU 0 memory in use", "Resident memory"):
            self.assertIn(label, labels)

    def test_devices_lie_below_the_thread_that_launches_with_their_memory(self):
        labels = self.labels(self.timeline())
        main = labels.index("python3 [4100]")
        below = ["GPU 0 stream 7 compute", "GPU 0 stream 13 copies", "GPU 0 stream 20 nccl", "GPU 0 waits"]
        self.assertEqual(labels[main + 1:main + 5], below)
        self.assertEqual([label.split("\n")[0] for label in labels[main + 5:main + 8]], ["GPU 0 memory taken", "GPU 0 memory held", "GPU 0 memory in use"])
        self.assertIn("python3 [4100] sampled", labels[main + 8])
        self.assertLess(main + 8, labels.index("pt_autograd_0 [4101]"))

    def test_the_thread_that_launches_most_is_the_one_above_the_device(self):
        labels = self.labels(self.open(page("timeline", "--rank", "0", run=made("--long-backward"))))
        self.assertEqual(labels[1:4], ["python3 [4100]", "pt_autograd_0 [4101]", "GPU 0 stream 7 compute"])
        self.assertLess(labels.index("GPU 0 stream 7 compute"), labels.index("python3 [4100] sampled"))

    def test_curves_have_units(self):
        labels = self.labels(self.timeline())
        self.assertIn("GPU 0 SM clock\npeak 1.98 GHz", labels)
        self.assertIn("GPU 0 memory taken\npeak 8.00 GiB", labels)

    def test_a_thread_that_was_busy_only_before_the_steps_is_idle(self):
        timeline = self.timeline()
        self.assertIn("▸ 1 idle thread", self.labels(timeline))
        self.assertNotIn("pt_data_pin", timeline.text("#labels"))
        self.assertNotIn("(waiting for a lock)", timeline.text("#table"))
        timeline.run("document.querySelector('#labels .idle').click()")
        self.assertIn("pt_data_pin", timeline.text("#labels"))

    def test_lines_of_steps_that_lie_close_together_are_left_out(self):
        many = self.open(page("timeline", run=made("--steps", "300")))
        self.assertEqual(self.lines(many), 0)
        few = self.timeline()
        self.assertGreaterEqual(self.lines(few), 4)

    def test_a_graph_lies_around_its_nodes(self):
        timeline = self.timeline()
        self.find(timeline, "CUDA graph 1")
        self.assertEqual(self.fact(timeline, "Kind"), "graph")
        self.assertIn("cudaGraphLaunch", self.fact(timeline, "Launched by"))
        self.assertEqual(self.fact(timeline, "Lasts"), "62.0 µs")
        timeline.key("ArrowDown")
        self.assertEqual(timeline.text("#chosen h2"), "elementwise_kernel<lerp>")
        self.assertIn("graph 1", self.fact(timeline, "Details"))

    def test_the_host_is_active_when_samples_found_it_on_a_core(self):
        timeline = self.open(page("timeline", "--rank", "0"))
        self.assertRegex(self.fact(timeline, "CPU active"), r"~[\d.]+ ms\s+[\d.]+ %")
        self.assertRegex(self.fact(timeline, "In operators or calls"), r"^[\d.]+ ms\s+[\d.]+ %")

    def test_a_run_of_only_samples_shows_when_its_host_was_active(self):
        timeline = self.open(page("timeline", run=sampled()))
        if "sampled" not in timeline.text("#labels"):
            self.skipTest("threads cannot be sampled on this machine")
        known = timeline.text("#chosen")
        self.assertRegex(known, r"CPU active\s+~[\d.]+ .?s\s+[\d.]+ %")
        self.assertIn("~ is an estimate", known)

    def test_compilations_are_a_lane_of_their_own_and_no_work_of_threads(self):
        timeline = self.open(page("timeline", run=compiled()))
        self.assertIn("torch.compile", timeline.text("#labels"))
        known = timeline.text("#chosen")
        self.assertRegex(known, r"CPU active\s+not recorded")
        self.find(timeline, "compile forward")
        self.assertEqual(timeline.text("#chosen h2"), "compile forward (4/0)")
        self.assertRegex(self.fact(timeline, "Details"), r"^\S+job.py:31 · dynamo [\d.]+ ms · aot ")

    def test_a_group_folds(self):
        timeline = self.timeline()
        lanes = "document.querySelectorAll('#labels .lane').length"
        before = timeline.run(lanes)
        timeline.press("#labels .group")
        self.assertLess(timeline.run(lanes), before)
        self.assertEqual(timeline.run("document.querySelector('#labels .group').getAttribute('aria-expanded')"), "false")

    def test_a_name_that_looks_like_markup_stays_text(self):
        timeline = self.timeline()
        self.find(timeline, "onerror")
        self.assertEqual(timeline.text("#chosen h2"), HOSTILE)

    def test_events_that_do_not_fit_are_left_out_and_counted(self):
        small = page("timeline", "--max-size", "200K", run=made("--steps", "150"))
        self.assertLessEqual(small.stat().st_size, 200 << 10)
        self.assertRegex(self.open(small).text("#note"), r"\d+ events shorter than \d+ ns were left out")

    def test_dark_and_narrow(self):
        timeline = self.timeline(dark=True, width=390, height=800, scale=2, touch=True)
        self.assertLess(self.paper(timeline), 60)
        self.assert_fits(timeline)
        whole = self.pixels(timeline)
        timeline.press("#zoom-in")
        self.assertNotEqual(self.pixels(timeline), whole)
