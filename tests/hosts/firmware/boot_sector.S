# The first sector of a disk that SeaBIOS boots from. It reads sector 100 and prints the text in it on the first serial
# port, writes what it read to sector 200, and says that it is done; or it says that the BIOS reported a failure.
  .code16
  .globl _start
_start:
  xorw %ax, %ax
  movw %ax, %ds
  movw %ax, %es
  movw %ax, %ss
  movw $0x7c00, %sp
  movw $read_sector, %si
  movb $0x42, %ah  # read; the BIOS left the drive's number in %dl
  int $0x13
  jc failed
  movw $0x8000, %si
  call print
  movw $write_sector, %si
  movw $0x4300, %ax  # write, without verifying
  int $0x13
  jc failed
  movw $done, %si
  call print
stop:
  hlt
  jmp stop
failed:
  movw $failure, %si
  call print
  jmp stop

# Prints the string at %si, ended by a zero.
print:
  lodsb
  testb %al, %al
  jz printed
  pushw %dx
  movw $0x3f8, %dx
  outb %al, %dx
  popw %dx
  jmp print
printed:
  ret

done: .asciz "boot sector: done\r\n"
failure: .asciz "boot sector: the BIOS failed\r\n"

  .balign 4
# Disk address packets: size, sectors, buffer, first sector.
read_sector:
  .byte 16, 0
  .word 1, 0x8000, 0
  .quad 100
write_sector:
  .byte 16, 0
  .word 1, 0x8000, 0
  .quad 200

  .org 510
  .word 0xaa55
