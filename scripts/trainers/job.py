"""One small training job with a trainer and tprof's callback: `job.py transformers|lightning|accelerate DIR`."""

import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import tprof.callbacks

torch.manual_seed(0)
WHICH, DIRECTORY = sys.argv[1:3]


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, row):
        x = torch.full((4,), row / 24)
        return {"x": x, "labels": x.sum()}


def transformers():
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x, labels=None):
            out = self.layer(x).squeeze(-1)
            return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}

    arguments = TrainingArguments(
        DIRECTORY, num_train_epochs=2, per_device_train_batch_size=4, gradient_accumulation_steps=2,
        eval_strategy="epoch", save_strategy="epoch", logging_steps=1, report_to=[], disable_tqdm=True,
        use_cpu=True, dataloader_pin_memory=False,
    )
    trainer = Trainer(Model(), arguments, train_dataset=Rows(), eval_dataset=Rows(),
                      callbacks=[tprof.callbacks.transformers()])
    trainer.train()
    trainer.evaluate()
    print(trainer.state.global_step, len(os.listdir(DIRECTORY)))


def lightning():
    from lightning.pytorch import LightningModule, Trainer

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, number):
            loss = torch.nn.functional.mse_loss(self.layer(batch["x"]).squeeze(-1), batch["labels"])
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, number):
            self.training_step(batch, number)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    loader = torch.utils.data.DataLoader(Rows(), batch_size=5)
    trainer = Trainer(accelerator="cpu", devices=1, max_epochs=2, default_root_dir=DIRECTORY, logger=False,
                      enable_progress_bar=False, enable_model_summary=False,
                      callbacks=[tprof.callbacks.lightning()])
    trainer.fit(Model(), loader, loader)
    print(trainer.global_step)


def accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, log_with=tprof.callbacks.accelerate())
    accelerator.init_trackers("job", config={"rate": 0.1})
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = torch.utils.data.DataLoader(Rows(), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(2):
        with tprof.range("epoch %d" % epoch):
            for batch in loader:
                loss = torch.nn.functional.mse_loss(model(batch["x"]).squeeze(-1), batch["labels"])
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            accelerator.log({"loss": loss.item(), "what": "text"}, step=epoch)
    accelerator.end_training()
    print("trained")


{"transformers": transformers, "lightning": lightning, "accelerate": accelerate}[WHICH]()
